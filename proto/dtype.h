/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and tensor types; the numbers are ONNX's TensorProto.DataType.
 *
 * safetensors, data, graph, plan, kernels > [dtype] */
#ifndef RB_PROTO_DTYPE_H
#define RB_PROTO_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RB_DTYPE_MAP(X)                                                                            \
    X(1, F32, "float32", 4)                                                                        \
    X(2, U8, "uint8", 1)                                                                           \
    X(3, I8, "int8", 1)                                                                            \
    X(5, I16, "int16", 2)                                                                          \
    X(4, U16, "uint16", 2)                                                                         \
    X(6, I32, "int32", 4)                                                                          \
    X(7, I64, "int64", 8)                                                                          \
    X(9, BOOL, "bool", 1)                                                                          \
    X(10, F16, "float16", 2)                                                                       \
    X(11, F64, "float64", 8)                                                                       \
    X(12, U32, "uint32", 4)                                                                        \
    X(13, U64, "uint64", 8)                                                                        \
    X(16, BF16, "bfloat16", 2)

enum rb_dtype {
    RB_NONE = 0,
#define X(number, name, text, size) RB_##name = number,
    RB_DTYPE_MAP(X)
#undef X
};

enum {
    RB_MAX_RANK = 8,
    RB_TENSOR_TEXT = 192, /* room for rb_tensor_text: eight axes of any size */
};

/* A row-major tensor's type; dtype RB_NONE stands for an absent tensor. */
struct rb_tensor_type {
    enum rb_dtype dtype;
    int rank;
    int64_t dim[RB_MAX_RANK];
};

const char *rb_dtype_text(enum rb_dtype dtype); /* "?" for an unknown one */
size_t rb_dtype_size(enum rb_dtype dtype);      /* 0 for an unknown one */

static inline bool rb_dtype_is_real(enum rb_dtype dtype)
{
    return dtype == RB_F32 || dtype == RB_F64 || dtype == RB_F16 || dtype == RB_BF16;
}

/* A half has 1 sign, 5 exponent and 10 fraction bits; every half is exactly a float. */
float rb_dtype_half(uint16_t half);
uint16_t rb_dtype_to_half(float x); /* to nearest even */

/* A bfloat16 is the upper half of a float. */
float rb_dtype_bfloat(uint16_t upper);
uint16_t rb_dtype_to_bfloat(float x); /* to nearest even */

static inline int64_t rb_tensor_elements(const struct rb_tensor_type *type)
{
    int64_t count = 1;

    for (int i = 0; i < type->rank; i++)
        count *= type->dim[i];
    return count;
}

bool rb_tensor_same_shape(const struct rb_tensor_type *a, const struct rb_tensor_type *b);
bool rb_tensor_same(const struct rb_tensor_type *a, const struct rb_tensor_type *b);

/* "float32[4,128]"; "-" for an absent tensor. */
const char *rb_tensor_text(const struct rb_tensor_type *type, char room[RB_TENSOR_TEXT]);

#endif
