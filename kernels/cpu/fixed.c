/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients as 32-bit integers: their sums do not depend on the order. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/math.h"

/* 2^exponent as two factors that are in a float's range: multiplying by both is exact unless the
 * result is too small to round to anything but 0, or beyond the limit anyway. */
static void split_power(int exponent, float *ret_first, float *ret_second)
{
    exponent = exponent > 252 ? 252 : exponent < -252 ? -252 : exponent;
    *ret_first = ldexpf(1.0f, exponent / 2);
    *ret_second = ldexpf(1.0f, exponent - exponent / 2);
}

struct seen {
    uint32_t largest;
    uint32_t over; /* not 0: a summand was beyond the limit */
};

/* One pass: scale, note the largest, round to nearest even, clamp, add.  The conversion to an
 * integer is kept inside int32 first; a NaN is no summand. */
RB_CLONES static struct seen add(int32_t *restrict sum, const float *restrict g, size_t n,
                                 float weight, float first, float second, int32_t limit)
{
    const float end = 2147483648.0f, inside = 2147483520.0f;
    uint32_t largest = 0, over = 0;

    for (size_t i = 0; i < n; i++) {
        float x = g[i] * weight, t = x * first * second, size = fabsf(t), rounded;
        uint32_t bits = rb_float_bits(x) & 0x7fffffffu;
        int32_t integer, whole;
        uint32_t beyond;

        largest = bits > largest ? bits : largest;
        t = t > inside ? inside : t;
        t = t < -inside ? -inside : t;
        t = t == t ? t : 0.0f;
        rounded = rintf(t);
        integer = (int32_t)rounded;
        whole = integer < 0 ? -integer : integer;
        beyond = (uint32_t)(size >= end) | (uint32_t)(whole > limit);
        over |= beyond;
        integer = beyond ? (t < 0.0f ? -limit : limit) : integer;
        sum[i] = (int32_t)((uint32_t)sum[i] + (uint32_t)integer);
    }
    return (struct seen){largest, over};
}

void rb_cpu_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n,
                      float weight, int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    float first, second;
    struct seen seen;

    (void)device;
    split_power(exponent, &first, &second);
    seen = add(sum, g, n, weight, first, second, limit);
    if (seen.largest > *largest)
        *largest = seen.largest;
    if (seen.over)
        *overflow = true;
}

/* Eight lanes of double, joined pairwise. */
RB_CLONES static double squares(const int32_t *sum, size_t n)
{
    double lane[8] = {0};
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (int l = 0; l < 8; l++) {
            double x = (double)sum[i + (size_t)l];

            lane[l] += x * x;
        }
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)sum[i] * (double)sum[i];
    for (int width = 4; width > 0; width /= 2)
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    return lane[0];
}

double rb_cpu_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                            double scale)
{
    double factor = ldexp(scale, -exponent);

    (void)device;
    return squares(sum, n) * factor * factor;
}
