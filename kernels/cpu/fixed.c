/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients as 32-bit integers: their sums do not depend on the order. */
#include "kernels/cpu/fixed.h"

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/squares.h"

/* 2^exponent as two factors that are in a float's range: multiplying by both is exact unless the
 * result is too small to round to anything but 0, or beyond the limit anyway. */
struct scale {
    float weight, first, second;
    int32_t limit;
};

static struct scale scale_of(float weight, int exponent, int32_t limit)
{
    exponent = exponent > 252 ? 252 : exponent < -252 ? -252 : exponent;
    return (struct scale){
        .weight = weight,
        .first = ldexpf(1.0f, exponent / 2),
        .second = ldexpf(1.0f, exponent - exponent / 2),
        .limit = limit,
    };
}

/* Are all summands within the limit?  Scaling and rounding keep the order of magnitudes, so it is
 * enough to ask the largest (bits of |g * weight|); a NaN or an infinity is larger than all numbers
 * and is not within the limit. */
static RB_INLINE bool is_inside(uint32_t largest, const struct scale *scale)
{
    float most = rintf(rb_bits_float(largest) * scale->first * scale->second);

    return most < 2147483648.0f && (int32_t)most <= scale->limit;
}

/* Bits of the largest |g * weight| whose summand is within the limit: comparing bits with these is
 * enough. */
static uint32_t bound_of(const struct scale *scale)
{
    uint32_t within = 0, beyond = 0x7f800000;

    while (beyond - within > 1) {
        uint32_t middle = within + (beyond - within) / 2;

        *(is_inside(middle, scale) ? &within : &beyond) = middle;
    }
    return within;
}

struct rb_fixed_quick rb_fixed_quick(const struct rb_fixed *into)
{
    enum { EXTREME = 100, NOTHING = -1 };
    const struct scale scale = scale_of(into->weight, into->exponent, into->limit);
    const bool plain = into->exponent >= -EXTREME && into->exponent <= EXTREME;

    return (struct rb_fixed_quick){
        .weight = into->weight,
        .scale = scale.first * scale.second,
        .bound = plain ? (int32_t)bound_of(&scale) : NOTHING,
    };
}

struct seen {
    uint32_t largest;
    uint32_t over; /* not 0: a summand was beyond the limit */
};

/* Long enough that the checks of a chunk cost nothing, short enough that it stays in L1. */
enum { CHUNK = 2048 };

static RB_INLINE uint32_t largest_bits(const float *restrict g, size_t n, float weight)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = rb_float_bits(g[i] * weight) & 0x7fffffffu;

        largest = bits > largest ? bits : largest;
    }
    return largest;
}

/* Scale, round to nearest even, add; `fresh`: onto nothing. */
static RB_INLINE void add_inside(int32_t *restrict sum, const float *restrict g, size_t n,
                                 struct scale scale, bool fresh)
{
    for (size_t i = 0; i < n; i++) {
        float t = g[i] * scale.weight * scale.first * scale.second;

        sum[i] = (int32_t)((fresh ? 0 : (uint32_t)sum[i]) + (uint32_t)(int32_t)rintf(t));
    }
}

/* The same with a clamp for each summand; values are kept inside int32 before the conversion, and a
 * NaN adds 0.  Not 0: there was a summand beyond the limit. */
static RB_INLINE uint32_t add_clamped(int32_t *restrict sum, const float *restrict g, size_t n,
                                      struct scale scale)
{
    const float end = 2147483648.0f, inside = 2147483520.0f;
    const int32_t limit = scale.limit;
    uint32_t over = 0;

    for (size_t i = 0; i < n; i++) {
        float t = g[i] * scale.weight * scale.first * scale.second, size = fabsf(t);
        int32_t integer, whole;
        uint32_t beyond;

        t = t > inside ? inside : t;
        t = t < -inside ? -inside : t;
        t = t == t ? t : 0.0f;
        integer = (int32_t)rintf(t);
        whole = integer < 0 ? -integer : integer;
        beyond = (uint32_t)(size >= end) | (uint32_t)(whole > limit);
        over |= beyond;
        integer = beyond ? (t < 0.0f ? -limit : limit) : integer;
        sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)integer);
    }
    return over;
}

/* Two passes over each chunk; nearly always the second is the plain one. */
static RB_INLINE struct seen add_chunks(int32_t *restrict sum, const float *restrict g, size_t n,
                                        struct scale scale, bool fresh)
{
    struct seen seen = {0, 0};

    for (size_t at = 0; at < n; at += CHUNK) {
        size_t part = n - at < CHUNK ? n - at : CHUNK;
        uint32_t largest = largest_bits(g + at, part, scale.weight);

        seen.largest = largest > seen.largest ? largest : seen.largest;
        if (is_inside(largest, &scale)) {
            add_inside(sum + at, g + at, part, scale, fresh);
            continue;
        }
        if (fresh)
            memset(sum + at, 0, part * sizeof(*sum));
        seen.over |= add_clamped(sum + at, g + at, part, scale);
    }
    return seen;
}

RB_CLONES static struct seen add(int32_t *restrict sum, const float *restrict g, size_t n,
                                 struct scale scale)
{
    return add_chunks(sum, g, n, scale, false);
}

RB_CLONES static struct seen set(int32_t *restrict sum, const float *restrict g, size_t n,
                                 struct scale scale)
{
    return add_chunks(sum, g, n, scale, true);
}

void rb_cpu_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, bool fresh,
                      float weight, int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    struct scale scale = scale_of(weight, exponent, limit);
    struct seen seen;

    (void)device;
    seen = fresh ? set(sum, g, n, scale) : add(sum, g, n, scale);
    if (seen.largest > *largest)
        *largest = seen.largest;
    if (seen.over)
        *overflow = true;
}

RB_CLONES static void squares_of(const int32_t *sum, size_t n, struct rb_square_sums *squares)
{
    rb_square_sums_add(squares, sum, n);
}

void rb_cpu_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                          double scale, double *ret_squares)
{
    struct rb_square_sums squares = {0};

    (void)device;
    squares_of(sum, n, &squares);
    *ret_squares = rb_square_sums_join(&squares, exponent, scale);
}
