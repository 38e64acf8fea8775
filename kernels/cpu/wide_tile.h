/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of a product on processors with AVX-512: a strip of 8 rows of one factor times a panel of
 * up to 48 columns of the other, all of it in registers.
 *
 * samples, tall > wide_panel, [wide_tile] > pairs
 *
 * One word of the strip at a time is multiplied with vectors of the panel, so the strip is neither
 * packed nor turned: its rows are read where they lie, whether the words of a row or those of the 8
 * rows are side by side.  Each element is one chain of fused multiply-adds in the order of k.
 *
 * A core multiplies at its peak this way (Zen 4: 117 GFLOP/s of float32) as long as the panel is in
 * its second cache and the strip arrives in time, for which each tile may fetch lines that later
 * tiles will want. */
#ifndef RB_KERNELS_CPU_WIDE_TILE_H
#define RB_KERNELS_CPU_WIDE_TILE_H

#include "kernels/cpu/pairs.h"

/* 24 registers of sums, 3 and 1 of factors. */
enum { RB_WIDE_ROWS = 8, RB_WIDE_LANES = 16, RB_WIDE_VECTORS = 3 };
enum { RB_WIDE_COLUMNS = RB_WIDE_VECTORS * RB_WIDE_LANES };
enum { RB_WIDE_TILE = RB_WIDE_ROWS * RB_WIDE_COLUMNS };

struct rb_wide_strip {
    const rb_word *first;
    bool lies;     /* its rows are side by side */
    int64_t row;   /* words from row to row; 1 where it lies */
    int64_t step;  /* words along k, from one to the next; 1 where it does not lie */
    int64_t words; /* along k */
    /* Lines to fetch meanwhile, one a step, `pace` bytes apart: a line's size where it does not
     * lie. */
    const char *ahead;
    int64_t pace;
};

/* Where a tile goes: its rows are `step` apart. */
struct rb_wide_place {
    float *to;
    int64_t step;
    bool onto;         /* add to what is there: the part of the chain before this one */
    const float *bias; /* by column, added last; NULL: none */
};

/* Makes `vectors` vectors of each row, as many as the panel has: [words][vectors][RB_WIDE_LANES].
 */
void rb_wide_multiply(const struct rb_wide_strip *strip, const rb_word *panel, int vectors,
                      bool pairs, const struct rb_wide_place *place);

#endif
