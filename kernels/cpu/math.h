/* SPDX-License-Identifier: Apache-2.0 */
/* exp, log, tanh and erf in float, without branches, so that loops around them become vectors.
 *
 * Accurate to about two units in the last place.  The polynomials are Chebyshev fits made for this
 * file.  The C library's are not used here: their bits depend on its version. */
#ifndef RB_KERNELS_CPU_MATH_H
#define RB_KERNELS_CPU_MATH_H

#include "kernels/cpu/vector.h"

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

/* x = n ln 2 + r, |r| <= ln 2 / 2.  Adding 1.5 * 2^23 leaves n in the low bits.  2^n is applied in
 * two halves, so that results below the normal range and above the largest come out right. */
static RB_INLINE float rb_expf(float x)
{
    const float round = 12582912.0f;
    float n, r, p;
    int32_t whole, half;

    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    n = x * 1.44269504f + round;
    whole = (int32_t)(rb_float_bits(n) - rb_float_bits(round));
    n -= round;
    r = x - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    p = 1.989198131e-4f;
    p = p * r + 1.393454193e-3f;
    p = p * r + 8.333310024e-3f;
    p = p * r + 4.166645681e-2f;
    p = p * r + 0.1666666668f;
    p = p * r + 0.5000000014f;
    p = p * (r * r) + r + 1.0f;
    half = whole >> 1;
    p *= rb_bits_float((uint32_t)(half + 127) << 23);
    return p * rb_bits_float((uint32_t)(whole - half + 127) << 23);
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

    p = p * f + 0.1054619444f;
    p = p * f - 0.1065043485f;
    p = p * f + 0.1103591225f;
    p = p * f - 0.1245004349f;
    p = p * f + 0.1428658643f;
    p = p * f - 0.1666802983f;
    p = p * f + 0.2000000956f;
    p = p * f - 0.2499999f;
    p = p * f + 0.3333333328f;
    y = p * f * z + e * -2.12194440e-4f - 0.5f * z;
    y = f + y + e * 0.693359375f;
    y = x > 3.40282347e38f ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x >= 0.0f ? y : NAN;
}

static RB_INLINE float rb_tanhf(float x)
{
    float size = fabsf(x), z = x * x, p = -0.006096714166f, big;

    p = p * z + 0.020997179f;
    p = p * z - 0.05385090958f;
    p = p * z + 0.1333276974f;
    p = p * z - 0.3333332894f;
    big = copysignf(1.0f - 2.0f / (rb_expf(2.0f * size) + 1.0f), x);
    return size < 0.625f ? x + x * z * p : big;
}

/* Small: x + x P(x x).  Large: 1 - exp(-(t + t Q(t))), the logarithm of erfc being smooth. */
static RB_INLINE float rb_erff(float x)
{
    float t = fabsf(x), z = x * x, p = 8.334718615e-5f, q = -1.046065682e-6f, big;

    t = t > 4.0f ? 4.0f : t;
    p = p * z - 8.134709332e-4f;
    p = p * z + 5.200368587e-3f;
    p = p * z - 2.685915147e-2f;
    p = p * z + 0.1128369152f;
    p = p * z - 0.3761263352f;
    p = p * z + 0.1283791666f;
    q = q * t + 3.438850877e-5f;
    q = q * t - 4.988250082e-4f;
    q = q * t + 4.303789308e-3f;
    q = q * t - 2.513955031e-2f;
    q = q * t + 0.1078556529f;
    q = q * t + 0.6341481838f;
    q = q * t + 0.1289027981f;
    big = copysignf(1.0f - rb_expf(-(t + t * q)), x);
    return fabsf(x) < 0.92f ? x + x * p : big;
}

static RB_INLINE float rb_sigmoidf(float x)
{
    return 1.0f / (1.0f + rb_expf(-x));
}

/* x Phi(x) and its derivative Phi(x) + x phi(x). */
static RB_INLINE float rb_geluf(float x)
{
    return 0.5f * x * (1.0f + rb_erff(x * 0.707106781f));
}

static RB_INLINE float rb_gelu_slopef(float x)
{
    float phi = 0.398942280f * rb_expf(-0.5f * x * x);

    return 0.5f * (1.0f + rb_erff(x * 0.707106781f)) + x * phi;
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
