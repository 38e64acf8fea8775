/* SPDX-License-Identifier: Apache-2.0 */
/* One tile of a product: all of it in registers, then into memory or into fixed-point sums.
 *
 * product > [product_tile] > fixed
 *
 * A strip and a panel (product_pack.h) go in; the rows and columns of the tile that exist go to a
 * place in c or in sums. */
#ifndef RB_KERNELS_CPU_PRODUCT_TILE_H
#define RB_KERNELS_CPU_PRODUCT_TILE_H

#include "kernels/cpu/fixed.h"
#include "kernels/cpu/product_pack.h"

struct rb_tile_place {
    int rows, columns;
    /* In memory: */
    float *const *row; /* rows of c, */
    int64_t column;    /* where the tile begins in them */
    const float *bias; /* from that column on; NULL: none, or further parts of k follow */
    bool first;        /* the first part of k: c holds nothing yet */
    /* In sums: */
    int32_t *sum; /* its first element, and `step` from row to row */
    int64_t step;
};

/* How a run's summands go into the sums, and what became of them. */
struct rb_tile_sums {
    const struct rb_fixed *into;
    bool fresh;
    struct rb_fixed_quick quick;
    uint32_t largest[8]; /* by lane; what was beyond the bound went into `into` at once */
};

struct rb_tile_sums rb_tile_begin(const struct rb_fixed *into);
void rb_tile_end(const struct rb_tile_sums *sums);

/* c = a b, or c + a b behind the first part of k; plus the bias. */
void rb_tile_write(const struct rb_tile_place *place, const float *strip, const float *panel,
                   int64_t depth);

/* Adds a tile of each of n runs, one after the other, whose strips and panels lie one behind the
 * other: the bits of rb_tile_write into a place of its own and rb_fixed_add, or rb_fixed_set. */
void rb_tile_add(struct rb_tile_sums *sums, int n, const struct rb_tile_place *place,
                 const float *strip, const float *panel, int64_t depth);

#endif
