/* SPDX-License-Identifier: Apache-2.0 */
/* Squares of fixed-point sums, for the norm of a gradient: alone, or while an optimizer's step has
 * the sums in cache.
 *
 * fixed, optimizer > [squares.h]
 *
 * In double, over 32 lanes that are joined pairwise: lane l takes elements l, l + 32, ..., so runs
 * of sums that follow each other in whole lanes are added as one. */
#ifndef RB_KERNELS_CPU_SQUARES_H
#define RB_KERNELS_CPU_SQUARES_H

#include "kernels/cpu/vector.h"

#include <stddef.h>

struct rb_square_sums {
    double lane[RB_LANES];
};

/* All runs but the last have a multiple of RB_LANES elements. */
static RB_INLINE void rb_square_sums_add(struct rb_square_sums *squares, const int32_t *sum,
                                         size_t n)
{
    RB_LANE_ADD(squares->lane, RB_LANES, 0, (int64_t)n, (double)sum[at_] * (double)sum[at_]);
}

/* The squares of the sums times 2^-exponent * scale. */
static RB_INLINE double rb_square_sums_join(struct rb_square_sums *squares, int exponent,
                                            double scale)
{
    const double factor = ldexp(scale, -exponent);

    for (int width = RB_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            squares->lane[l] += squares->lane[l + width];
    return squares->lane[0] * factor * factor;
}

#endif
