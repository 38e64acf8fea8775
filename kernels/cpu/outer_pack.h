/* SPDX-License-Identifier: Apache-2.0 */
/* Factors of an outer product in the order in which its tiles go through them.
 *
 * outer > [outer_pack]
 *
 * A strip is RB_OUTER_ROWS columns of a (rows of c), a panel RB_OUTER_COLUMNS columns of b: for
 * each step so many words side by side, zeros where there are no further ones.  A word is a float32
 * and a step is one k, or it is two bfloat16 of neighbouring k: the first is in its upper half,
 * which processors multiply first, and a last one without a neighbour has a zero. */
#ifndef RB_KERNELS_CPU_OUTER_PACK_H
#define RB_KERNELS_CPU_OUTER_PACK_H

#include <stdbool.h>
#include <stdint.h>

/* A tile is as many elements of c as fit the registers: 28 of 32, the rest are factors. */
enum { RB_OUTER_ROWS = 14, RB_OUTER_COLUMNS = 32 };

/* A factor: depth rows of so many columns. */
struct rb_outer_factor {
    const void *from;
    bool pairs; /* of bfloat16 */
    int64_t depth, columns;
};

/* How many words follow each other in a row or a column of a tile. */
static inline int64_t rb_outer_steps(int64_t depth, bool pairs)
{
    return pairs ? (depth + 1) / 2 : depth;
}

/* For processors with AVX-512.  All of b, panel after panel: */
void rb_outer_panels(const struct rb_outer_factor *b, void *panels);
/* The strip of a from column i on, of which `rows` are there: */
void rb_outer_strip(const struct rb_outer_factor *a, int64_t i, int rows, void *strip);

#endif
