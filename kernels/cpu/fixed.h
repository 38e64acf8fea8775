/* SPDX-License-Identifier: Apache-2.0 */
/* What a summand is made with, for whoever adds summands that are in no memory yet.
 *
 * outer, product_tile > [fixed.h] */
#ifndef RB_KERNELS_CPU_FIXED_H
#define RB_KERNELS_CPU_FIXED_H

#include "kernels/device.h"

/* The summands of what is in registers: g * weight, where its bits but for the sign are at most
 * `bound`, makes round(g * weight * scale), which is within the limit.  Powers of two that are no
 * extremes are that one factor, exact but for what rounds to 0 anyway; of others everything is
 * beyond the bound, as a NaN and an infinity always are. */
struct rb_fixed_quick {
    float weight, scale;
    int32_t bound;
};

struct rb_fixed_quick rb_fixed_quick(const struct rb_fixed *into);

#endif
