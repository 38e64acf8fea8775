/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

#define TYPES(X)                                                                                   \
    X(F32, rb_real)                                                                                \
    X(F64, double)                                                                                 \
    X(U8, uint8_t)                                                                                 \
    X(I8, int8_t)                                                                                  \
    X(U16, uint16_t)                                                                               \
    X(I16, int16_t)                                                                                \
    X(I32, int32_t)                                                                                \
    X(U32, uint32_t)                                                                               \
    X(U64, uint64_t)                                                                               \
    X(I64, int64_t)                                                                                \
    X(BOOL, uint8_t)

double rb_reference_get(const struct rb_tensor_type *type, const void *data, int64_t i)
{
    switch (type->dtype) {
#define X(name, T)                                                                                 \
    case RB_##name:                                                                                \
        return (double)((const T *)data)[i];
        TYPES(X)
#undef X
    case RB_F16:
        return (double)rb_dtype_half(((const uint16_t *)data)[i]);
    case RB_BF16:
        return (double)rb_dtype_bfloat(((const uint16_t *)data)[i]);
    default:
        return (double)NAN;
    }
}

void rb_reference_set(const struct rb_tensor_type *type, void *data, int64_t i, double x)
{
    switch (type->dtype) {
#define X(name, T)                                                                                 \
    case RB_##name:                                                                                \
        ((T *)data)[i] = (T)x;                                                                     \
        break;
        TYPES(X)
#undef X
    case RB_F16:
        ((uint16_t *)data)[i] = rb_dtype_to_half((float)x);
        break;
    case RB_BF16:
        ((uint16_t *)data)[i] = rb_dtype_to_bfloat((float)x);
        break;
    default:
        break;
    }
}

void rb_reference_index(const struct rb_tensor_type *type, int64_t i, int64_t *ret_index)
{
    for (int k = type->rank - 1; k >= 0; k--) {
        ret_index[k] = i % type->dim[k];
        i /= type->dim[k];
    }
}

int64_t rb_reference_flat(const struct rb_tensor_type *type, const int64_t *index)
{
    int64_t i = 0;

    for (int k = 0; k < type->rank; k++)
        i = i * type->dim[k] + index[k];
    return i;
}

int64_t rb_reference_broadcast(const struct rb_tensor_type *type, const int64_t *index, int rank)
{
    int64_t own[RB_MAX_RANK];

    for (int k = 0; k < type->rank; k++)
        own[k] = type->dim[k] == 1 ? 0 : index[rank - type->rank + k];
    return rb_reference_flat(type, own);
}

void rb_reference_fill(const struct rb_tensor_type *type, void *data, double x)
{
    for (int64_t i = 0; i < rb_tensor_elements(type); i++)
        rb_reference_set(type, data, i, x);
}
