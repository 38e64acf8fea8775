/* SPDX-License-Identifier: Apache-2.0 */
/* What a summand is made with, for whoever adds summands that are in no memory yet.
 *
 * fixed, outer, product_tile > [fixed.h] */
#ifndef RB_KERNELS_CPU_FIXED_H
#define RB_KERNELS_CPU_FIXED_H

#include "kernels/cpu/math.h"
#include "kernels/device.h"

/* 2^exponent as two factors that are in a float's range: multiplying by both is exact unless the
 * result is too small to round to anything but 0, or beyond the limit anyway. */
struct rb_fixed_scale {
    float weight, first, second;
    int32_t limit;
};

struct rb_fixed_scale rb_fixed_scale(float weight, int exponent, int32_t limit);

/* Are all summands within the limit?  Scaling and rounding keep the order of magnitudes, so it is
 * enough to ask the largest (bits of |g * weight|); a NaN or an infinity is larger than all and is
 * not. */
static RB_INLINE bool rb_fixed_inside(uint32_t largest, const struct rb_fixed_scale *scale)
{
    float most = rintf(rb_bits_float(largest) * scale->first * scale->second);

    return most < 2147483648.0f && (int32_t)most <= scale->limit;
}

/* Bits of the largest summand that is within the limit: what a larger one has to be compared with
 * no more. */
uint32_t rb_fixed_bound(const struct rb_fixed_scale *scale);

/* The same for who has summands in registers: g * weight, where its bits but for the sign are at
 * most `bound`, makes round(g * weight * scale).  Powers of two that are no extremes are that one
 * factor, exact but for what rounds to 0 anyway; of others everything is beyond the bound. */
struct rb_fixed_quick {
    float weight, scale;
    int32_t bound;
};

struct rb_fixed_quick rb_fixed_quick(const struct rb_fixed *into);

#endif
