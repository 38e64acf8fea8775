/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/dtype.h"

#include <string.h>

const char *rb_dtype_text(enum rb_dtype dtype)
{
    switch (dtype) {
#define X(number, name, text, size)                                                                \
    case RB_##name:                                                                                \
        return text;
        RB_DTYPE_MAP(X)
#undef X
    case RB_NONE:
        break;
    }
    return "?";
}

size_t rb_dtype_size(enum rb_dtype dtype)
{
    switch (dtype) {
#define X(number, name, text, size)                                                                \
    case RB_##name:                                                                                \
        return size;
        RB_DTYPE_MAP(X)
#undef X
    case RB_NONE:
        break;
    }
    return 0;
}

float rb_dtype_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t bits, fraction = half & 1023;
    float x;

    if (exponent == 0) {
        x = (float)fraction * 0x1p-24f;
        return sign ? -x : x;
    }
    bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    memcpy(&x, &bits, sizeof x);
    return x;
}
