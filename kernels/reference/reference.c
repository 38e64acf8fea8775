/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>
#include <stdlib.h>

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

enum { TENSORS = 8 };

/* The tensor itself, or room for a copy of it. */
static void *wide_room(const struct rb_tensor_type *type, const void *data,
                       struct rb_tensor_type *ret_type)
{
    void *room;

    *ret_type = *type;
    if (!data || type->dtype != RB_BF16)
        return (void *)(uintptr_t)data;
    ret_type->dtype = RB_F32;
    room = calloc((size_t)rb_tensor_elements(type) + 1, sizeof(rb_real));
    if (!room)
        abort();
    return room;
}

static void convert(const struct rb_tensor_type *to_type, void *to,
                    const struct rb_tensor_type *from_type, const void *from)
{
    for (int64_t i = 0; i < rb_tensor_elements(to_type); i++)
        rb_reference_set(to_type, to, i, rb_reference_get(from_type, from, i));
}

bool rb_reference_widened(const struct rb_call *call, rb_reference *reference,
                          const void *const *in, void *const *out, const struct rb_key *key)
{
    struct rb_tensor_type in_types[TENSORS], out_types[TENSORS];
    void *from[TENSORS] = {NULL}, *to[TENSORS] = {NULL};
    struct rb_call wide = *call;
    bool any = false;

    wide.in = in_types;
    wide.out = out_types;
    for (int i = 0; i < call->n_in; i++) {
        from[i] = wide_room(&call->in[i], in[i], &in_types[i]);
        if (from[i] != in[i])
            convert(&in_types[i], from[i], &call->in[i], in[i]);
        any = any || from[i] != in[i];
    }
    for (int i = 0; i < call->n_out; i++) {
        to[i] = wide_room(&call->out[i], out[i], &out_types[i]);
        any = any || to[i] != out[i];
    }
    if (any)
        reference(&wide, (const void *const *)from, to, key);
    for (int i = 0; i < call->n_in; i++)
        if (from[i] != in[i])
            free(from[i]);
    for (int i = 0; i < call->n_out; i++)
        if (to[i] != out[i]) {
            convert(&call->out[i], out[i], &out_types[i], to[i]);
            free(to[i]);
        }
    return any;
}
