/* SPDX-License-Identifier: Apache-2.0 */
/* One name for a function of float and of double, and numbers of 16 bits. */
#ifndef RB_KERNELS_CUDA_NUMBER_H
#define RB_KERNELS_CUDA_NUMBER_H

#include "kernels/cuda/launch.h"

#define BOTH(name)                                                                                 \
    static inline RB_GPU float rb_##name(float x)                                                  \
    {                                                                                              \
        return name##f(x);                                                                         \
    }                                                                                              \
    static inline RB_GPU double rb_##name(double x)                                                \
    {                                                                                              \
        return name(x);                                                                            \
    }

BOTH(exp)
BOTH(expm1)
BOTH(log)
BOTH(log1p)
BOTH(sqrt)
BOTH(floor)
BOTH(ceil)
BOTH(rint)
BOTH(sin)
BOTH(cos)
BOTH(tan)
BOTH(asin)
BOTH(acos)
BOTH(atan)
BOTH(sinh)
BOTH(cosh)
BOTH(asinh)
BOTH(acosh)
BOTH(atanh)
BOTH(tanh)
BOTH(erf)
BOTH(fabs)

#undef BOTH

static inline RB_GPU uint32_t rb_bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static inline RB_GPU float rb_float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

static inline RB_GPU float rb_bfloat_get(uint16_t upper)
{
    return rb_float_of((uint32_t)upper << 16);
}

/* To nearest even; a NaN stays one. */
static inline RB_GPU uint16_t rb_bfloat_put(float x)
{
    uint32_t bits = rb_bits_of(x);

    if (x != x)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Element i of float32, or of bfloat16. */
static inline RB_GPU float rb_real_get(const void *from, bool is_short, int64_t i)
{
    return is_short ? rb_bfloat_get(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

static inline RB_GPU void rb_real_put(void *to, bool is_short, int64_t i, float x)
{
    if (is_short)
        ((uint16_t *)to)[i] = rb_bfloat_put(x);
    else
        ((float *)to)[i] = x;
}

static inline RB_GPU float rb_half_get(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 0x1f;
    uint32_t fraction = half & 0x3ff;

    if (exponent == 0x1f)
        return rb_float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent == 0)
        return rb_float_of(rb_bits_of((float)fraction * 0x1p-24f) | sign);
    return rb_float_of(sign | (exponent + 112) << 23 | fraction << 13);
}

static inline RB_GPU uint16_t rb_half_put(float x)
{
    uint32_t bits = rb_bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;

    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x1ff));
    if (size >= 0x477ff000) /* rounds to more than the largest */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) /* a multiple of 2^-24, rounded by the addition */
        return (uint16_t)(sign | (rb_bits_of(rb_float_of(size) + 0.5f) - rb_bits_of(0.5f)));
    return (uint16_t)(sign | (((size + 0xfff + (size >> 13 & 1)) >> 13) - (112 << 10)));
}

#endif
