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
