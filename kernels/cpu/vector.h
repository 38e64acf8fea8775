/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that use whatever vectors the machine has and give the same bits on all of them.
 *
 * RB_CLONES compiles a function for several instruction sets and picks one when the program is
 * loaded.  Every float operation is IEEE's and none is contracted, so the clones of an elementwise
 * loop agree.  A sum is written with a fixed number of lanes that are joined in a fixed order, so
 * it does not matter how many of them fit a register. */
#ifndef RB_KERNELS_CPU_VECTOR_H
#define RB_KERNELS_CPU_VECTOR_H

#include "base/sanitized.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Sanitizers run before the loader has picked a clone; other compilers lack the attribute. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !RB_SANITIZED
#define RB_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define RB_CLONES
#endif

/* With sanitizers, code that is inlined everywhere grows so much that a compiler takes minutes for
 * one file. */
#if RB_SANITIZED
#define RB_INLINE inline
#else
#define RB_INLINE inline __attribute__((always_inline))
#endif

/* A function of AVX-512; its caller has asked whether the processor has it. */
#if defined(__x86_64__)
#define RB_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#endif

/* Sums and the like go over 32 lanes in memory: the inner loop is one that compilers make vectors
 * of (compiler vectors proper are split up before clones are made), and lane i always takes the
 * elements i, i + 32, ... whatever the width.  TERM is an expression of the index `at_`. */
enum { RB_LANES = 32 };

/* Halves are added until one is left.  Each step is a loop of its own, so that it becomes vectors.
 */
static RB_INLINE float rb_join_sum(const float *lane)
{
    float half[RB_LANES / 2], quarter[RB_LANES / 4], eighth[RB_LANES / 8];

    for (int i = 0; i < RB_LANES / 2; i++)
        half[i] = lane[i] + lane[i + RB_LANES / 2];
    for (int i = 0; i < RB_LANES / 4; i++)
        quarter[i] = half[i] + half[i + RB_LANES / 4];
    for (int i = 0; i < RB_LANES / 8; i++)
        eighth[i] = quarter[i] + quarter[i + RB_LANES / 8];
    return (eighth[0] + eighth[2]) + (eighth[1] + eighth[3]);
}

/* lane_[l_] += TERM, an expression of the index `at_` and the lane `l_`, from `first` up to `end`;
 * lane_ has `lanes` sums side by side. */
#define RB_LANE_ADD(lane_, lanes, first, end, TERM)                                                \
    do {                                                                                           \
        int64_t from_ = (first), end_ = (end);                                                     \
        for (; from_ + (lanes) <= end_; from_ += (lanes))                                          \
            for (int l_ = 0; l_ < (lanes); l_++) {                                                 \
                const int64_t at_ = from_ + l_;                                                    \
                (lane_)[l_] += (TERM);                                                             \
            }                                                                                      \
        for (int l_ = 0; from_ + l_ < end_; l_++) {                                                \
            const int64_t at_ = from_ + l_;                                                        \
            (lane_)[l_] += (TERM);                                                                 \
        }                                                                                          \
    } while (0)

#define RB_LANE_SUM(n, TERM)                                                                       \
    ({                                                                                             \
        float sums_[RB_LANES] = {0};                                                               \
        RB_LANE_ADD(sums_, RB_LANES, 0, n, TERM);                                                  \
        rb_join_sum(sums_);                                                                        \
    })

static RB_INLINE float rb_sum(const float *x, int64_t n)
{
    return RB_LANE_SUM(n, x[at_]);
}

static RB_INLINE float rb_dot(const float *x, const float *y, int64_t n)
{
    return RB_LANE_SUM(n, x[at_] * y[at_]);
}

/* Sum of (x - shift)^2, and of y (x - shift). */
static RB_INLINE float rb_squares(const float *x, int64_t n, float shift)
{
    return RB_LANE_SUM(n, (x[at_] - shift) * (x[at_] - shift));
}

static RB_INLINE float rb_products(const float *y, const float *x, int64_t n, float shift)
{
    return RB_LANE_SUM(n, y[at_] * (x[at_] - shift));
}

/* The larger; a NaN wins. */
static RB_INLINE float rb_larger(float a, float b)
{
    return ((b > a) | (b != b)) ? b : a;
}

static RB_INLINE float rb_max(const float *x, int64_t n)
{
    float lane[RB_LANES];
    int64_t at = 0;

    for (int l = 0; l < RB_LANES; l++)
        lane[l] = -INFINITY;
    for (; at + RB_LANES <= n; at += RB_LANES)
        for (int l = 0; l < RB_LANES; l++)
            lane[l] = rb_larger(lane[l], x[at + l]);
    for (int l = 0; at + l < n; l++)
        lane[l] = rb_larger(lane[l], x[at + l]);
    for (int width = RB_LANES / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] = rb_larger(lane[l], lane[l + width]);
    return lane[0];
}

/* The largest element that is a number; -infinity where none is.  One instruction where rb_max
 * takes four, for callers that notice a NaN by other means. */
static RB_INLINE float rb_most(const float *x, int64_t n)
{
    float lane[RB_LANES], half[RB_LANES / 2], quarter[RB_LANES / 4];
    int64_t at = 0;

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
    for (int l = 0; l < RB_LANES; l++)
        lane[l] = -INFINITY;
    for (; at + RB_LANES <= n; at += RB_LANES)
        for (int l = 0; l < RB_LANES; l++)
            lane[l] = LARGER(x[at + l], lane[l]);
    for (int l = 0; at + l < n; l++)
        lane[l] = LARGER(x[at + l], lane[l]);
    for (int i = 0; i < RB_LANES / 2; i++)
        half[i] = LARGER(lane[i], lane[i + RB_LANES / 2]);
    for (int i = 0; i < RB_LANES / 4; i++)
        quarter[i] = LARGER(half[i], half[i + RB_LANES / 4]);
    for (int i = 1; i < RB_LANES / 4; i++)
        quarter[0] = LARGER(quarter[0], quarter[i]);
    return quarter[0];
#undef LARGER
}

#endif
