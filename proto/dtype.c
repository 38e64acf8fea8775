/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/dtype.h"

#include <inttypes.h>
#include <stdio.h>
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

/* A NaN stays a quiet NaN; a number that is too large becomes infinite; one that is too small
 * becomes a multiple of 2^-24. */
uint16_t rb_dtype_to_half(float x)
{
    uint32_t bits, sign, size;

    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 16 & 0x8000;
    size = bits & 0x7fffffff;
    if (size > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) { /* below 2^-14: adding 0.5 leaves the multiple in the low bits */
        float tiny;

        memcpy(&tiny, &size, sizeof tiny);
        tiny += 0.5f;
        memcpy(&bits, &tiny, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000));
    }
    size += 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | ((size >> 13) - (112 << 10)));
}

float rb_dtype_bfloat(uint16_t upper)
{
    uint32_t bits = (uint32_t)upper << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

uint16_t rb_dtype_to_bfloat(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

bool rb_tensor_same_shape(const struct rb_tensor_type *a, const struct rb_tensor_type *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

bool rb_tensor_same(const struct rb_tensor_type *a, const struct rb_tensor_type *b)
{
    return a->dtype == b->dtype && rb_tensor_same_shape(a, b);
}

const char *rb_tensor_text(const struct rb_tensor_type *type, char room[RB_TENSOR_TEXT])
{
    int at = snprintf(room, RB_TENSOR_TEXT, "%s[", rb_dtype_text(type->dtype));

    if (type->dtype == RB_NONE)
        return strcpy(room, "-");
    for (int i = 0; i < type->rank && i < RB_MAX_RANK; i++)
        at += snprintf(room + at, (size_t)(RB_TENSOR_TEXT - at), "%s%" PRId64, i ? "," : "",
                       type->dim[i]);
    snprintf(room + at, (size_t)(RB_TENSOR_TEXT - at), "]");
    return room;
}
