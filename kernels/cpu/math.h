/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, tanh and erf in float, without branches, so that loops around them become vectors.
 *
 * Accurate to about two units in the last place.  The polynomials are Chebyshev fits made for this
 * file.  The C library's are not used here: their bits depend on its version. */
#ifndef RB_KERNELS_CPU_MATH_H
#define RB_KERNELS_CPU_MATH_H

#include "kernels/cpu/vector.h"

#include <stdbool.h>

/* a b + c with one rounding, written where it is meant: the same on every machine. */
#define RB_FMA(a, b, c) __builtin_fmaf(a, b, c)

static RB_INLINE float rb_bits_float(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static RB_INLINE uint32_t rb_float_bits(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* 1.5 * 2^23: added to a small number, it leaves the nearest whole one in the low bits. */
#define RB_EXP_ROUND 12582912.0f

/* x = n ln 2 + r with |r| <= ln 2 / 2; beyond = e^r - 1. */
struct rb_exp_parts {
    float n, beyond; /* n with RB_EXP_ROUND added to it */
};
static RB_INLINE struct rb_exp_parts rb_exp_partsf(float x)
{
    float sum = RB_FMA(x, 1.44269504f, RB_EXP_ROUND), n = sum - RB_EXP_ROUND, r, p;

    r = RB_FMA(n, -0.693359375f, x);
    r = RB_FMA(n, 2.12194440e-4f, r);
    p = 1.989198131e-4f;
    p = RB_FMA(p, r, 1.393454193e-3f);
    p = RB_FMA(p, r, 8.333310024e-3f);
    p = RB_FMA(p, r, 4.166645681e-2f);
    p = RB_FMA(p, r, 0.1666666668f);
    p = RB_FMA(p, r, 0.5000000014f);
    return (struct rb_exp_parts){sum, RB_FMA(p, r * r, r)};
}

/* 2^n is applied in two halves, so that results up to the largest and above it come out right.
 *
 * What would be smaller than the smallest normal number is exactly 0: a product that comes out
 * denormal takes the processor ten times as long, and masked scores are full of them.  RB_EXP_LEAST
 * is the first float whose exponential is normal; lanes below it work on it and are cleared after.
 */
#define RB_EXP_LEAST (-87.3365402f)
static RB_INLINE float rb_expf(float x)
{
    bool vanishes = x < RB_EXP_LEAST;
    struct rb_exp_parts parts;
    int32_t whole, half;
    float power;

    x = vanishes ? RB_EXP_LEAST : x;
    parts = rb_exp_partsf(x > 89.0f ? 89.0f : x);
    whole = (int32_t)(rb_float_bits(parts.n) - rb_float_bits(RB_EXP_ROUND));
    half = whole >> 1;
    power = (parts.beyond + 1.0f) * rb_bits_float((uint32_t)(half + 127) << 23);
    power *= rb_bits_float((uint32_t)(whole - half + 127) << 23);
    return vanishes ? 0.0f : power;
}

/* The same for an x that is not above 0, in three quarters of the time: there 2^n is a normal
 * number. */
static RB_INLINE float rb_exp_belowf(float x)
{
    struct rb_exp_parts parts = rb_exp_partsf(x < RB_EXP_LEAST ? RB_EXP_LEAST : x);
    float power = (parts.beyond + 1.0f) * rb_bits_float((rb_float_bits(parts.n) + 127) << 23);

    return x < RB_EXP_LEAST ? 0.0f : power;
}

/* e^x - 1 with the digits that a small x has: 2^n (e^r - 1) + (2^n - 1), made with half of 2^n, so
 * that the largest results come out right. */
static RB_INLINE float rb_expm1f(float x)
{
    struct rb_exp_parts parts;
    float half;

    x = x < RB_EXP_LEAST ? RB_EXP_LEAST : x;
    parts = rb_exp_partsf(x > 89.0f ? 89.0f : x);
    half = rb_bits_float((rb_float_bits(parts.n) + 126) << 23);
    return 2.0f * RB_FMA(half, parts.beyond, half - 0.5f);
}

/* x = 2^e (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */
static RB_INLINE float rb_logf(float x)
{
    const float tiny = 1.17549435e-38f;
    float scaled = x < tiny ? x * 8388608.0f : x;
    float base = x < tiny ? -23.0f : 0.0f;
    uint32_t shifted = rb_float_bits(scaled) - 0x3f3504f3u;
    int32_t exponent = (int32_t)shifted >> 23;
    float e = (float)exponent + base;
    float f = rb_bits_float(rb_float_bits(scaled) - ((uint32_t)exponent << 23)) - 1.0f;
    float z = f * f, p = -0.06210604844f, y;

    p = RB_FMA(p, f, 0.1054619444f);
    p = RB_FMA(p, f, -0.1065043485f);
    p = RB_FMA(p, f, 0.1103591225f);
    p = RB_FMA(p, f, -0.1245004349f);
    p = RB_FMA(p, f, 0.1428658643f);
    p = RB_FMA(p, f, -0.1666802983f);
    p = RB_FMA(p, f, 0.2000000956f);
    p = RB_FMA(p, f, -0.2499999f);
    p = RB_FMA(p, f, 0.3333333328f);
    y = RB_FMA(z, -0.5f, RB_FMA(p * f, z, e * -2.12194440e-4f));
    y = RB_FMA(e, 0.693359375f, f + y);
    y = x > 3.40282347e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

/* log(1 + x) for 0 <= x <= 1: what 1 + x rounds away is put back. */
static RB_INLINE float rb_log1pf(float x)
{
    float y = 1.0f + x;

    return rb_logf(y) + (x - (y - 1.0f)) / y;
}

static RB_INLINE float rb_tanhf(float x)
{
    float size = fabsf(x), z = x * x, p = -0.006096714166f, big;

    p = RB_FMA(p, z, 0.020997179f);
    p = RB_FMA(p, z, -0.05385090958f);
    p = RB_FMA(p, z, 0.1333276974f);
    p = RB_FMA(p, z, -0.3333332894f);
    big = copysignf(1.0f - 2.0f / (rb_expf(2.0f * size) + 1.0f), x);
    return size < 0.625f ? RB_FMA(x * z, p, x) : big;
}

/* Small: x + x P(x x).  Large: 1 - exp(-(t + t Q(t))), the logarithm of erfc being smooth. */
static RB_INLINE float rb_erff(float x)
{
    float t = fabsf(x), z = x * x, p = 8.334718615e-5f, q = -1.046065682e-6f, big;

    t = t > 4.0f ? 4.0f : t;
    p = RB_FMA(p, z, -8.134709332e-4f);
    p = RB_FMA(p, z, 5.200368587e-3f);
    p = RB_FMA(p, z, -2.685915147e-2f);
    p = RB_FMA(p, z, 0.1128369152f);
    p = RB_FMA(p, z, -0.3761263352f);
    p = RB_FMA(p, z, 0.1283791666f);
    q = RB_FMA(q, t, 3.438850877e-5f);
    q = RB_FMA(q, t, -4.988250082e-4f);
    q = RB_FMA(q, t, 4.303789308e-3f);
    q = RB_FMA(q, t, -2.513955031e-2f);
    q = RB_FMA(q, t, 0.1078556529f);
    q = RB_FMA(q, t, 0.6341481838f);
    q = RB_FMA(q, t, 0.1289027981f);
    big = copysignf(1.0f - rb_exp_belowf(-RB_FMA(t, q, t)), x);
    return fabsf(x) < 0.92f ? RB_FMA(x, p, x) : big;
}

static RB_INLINE float rb_sigmoidf(float x)
{
    return 1.0f / (1.0f + rb_expf(-x));
}

/* The normal distribution: Phi(-|x|) = e to the -x x / 2, times a polynomial in 1 / (1 + 0.3 |x|)
 * (Hastings' form).  Accurate to 1e-8 of 1, and in the left tail far better than 1 + erf. */
struct rb_normal {
    float phi, below; /* density and distribution */
};
static RB_INLINE struct rb_normal rb_normalf(float x)
{
    float e = rb_exp_belowf(-0.5f * x * x), k = 1.0f / RB_FMA(fabsf(x), 0.3f, 1.0f);
    float p = 0.02974271568f, tail;

    p = RB_FMA(p, k, -0.1246912928f);
    p = RB_FMA(p, k, 0.1304801864f);
    p = RB_FMA(p, k, 0.04470200352f);
    p = RB_FMA(p, k, 0.05109452571f);
    p = RB_FMA(p, k, 0.137815135f);
    p = RB_FMA(p, k, 0.1095053035f);
    p = RB_FMA(p, k, 0.1214809296f);
    p = RB_FMA(p, k, -0.0001295014035f);
    tail = p * e;
    return (struct rb_normal){0.398942280f * e, x > 0.0f ? 1.0f - tail : tail};
}

/* x Phi(x) and its derivative Phi(x) + x phi(x). */
static RB_INLINE float rb_geluf(float x)
{
    return x * rb_normalf(x).below;
}

static RB_INLINE float rb_gelu_slopef(float x)
{
    struct rb_normal normal = rb_normalf(x);

    return RB_FMA(x, normal.phi, normal.below);
}

/* The tanh approximation: (1 + tanh u) / 2 is the sigmoid of 2 u. */
static RB_INLINE float rb_gelu_tanhf(float x)
{
    return x * rb_sigmoidf(1.59576912f * (x + 0.044715f * x * x * x));
}

static RB_INLINE float rb_gelu_tanh_slopef(float x)
{
    float s = rb_sigmoidf(1.59576912f * (x + 0.044715f * x * x * x));

    return s + x * s * (1.0f - s) * 1.59576912f * (1.0f + 0.134145f * x * x);
}

#endif
