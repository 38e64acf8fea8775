/* SPDX-License-Identifier: Apache-2.0 */
/* What a summand is made with, for kernels that add summands from registers.
 *
 * outer, product_tile > [fixed.h] */
#ifndef RB_KERNELS_CPU_FIXED_H
#define RB_KERNELS_CPU_FIXED_H

#include "kernels/device.h"

/* How a g in a register becomes a summand.  Where the bits of g * weight, but for the sign, are at
 * most `bound`, the summand is round(g * weight * scale), which is within the limit.  A power of
 * two that is no extreme is this one factor `scale`, exact but for what rounds to 0 anyway; with an
 * extreme one everything is beyond the bound, as a NaN and an infinity always are. */
struct rb_fixed_quick {
    float weight, scale;
    int32_t bound;
};

struct rb_fixed_quick rb_fixed_quick(const struct rb_fixed *into);

#endif
