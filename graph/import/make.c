/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/import/make.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void *fail(struct rb_import *import, int err, const char *format, va_list args)
{
    char text[256];

    if (import->err)
        return NULL;
    vsnprintf(text, sizeof text, format, args);
    import->err = rb_why_set(import->why, err, "%s", text);
    return NULL;
}

void *rb_make_no(struct rb_import *import, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail(import, RB_EUNSUPPORTED, format, args);
    va_end(args);
    return NULL;
}

void *rb_make_bad(struct rb_import *import, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail(import, RB_EINVAL, format, args);
    va_end(args);
    return NULL;
}

struct rb_value *rb_make_need(struct rb_import *import, int i)
{
    struct rb_value *value = NULL;

    if (!import->err)
        import->err = rb_import_need(import, i, &value);
    return import->err ? NULL : value;
}

int64_t rb_make_int(struct rb_import *import, const char *key, int64_t otherwise)
{
    if (!import->err)
        import->err = rb_import_int(import, key, &otherwise);
    return otherwise;
}

float rb_make_float(struct rb_import *import, const char *key, float otherwise)
{
    if (!import->err)
        import->err = rb_import_float(import, key, &otherwise);
    return otherwise;
}

int rb_make_axis(struct rb_import *import, const char *key, int64_t otherwise, int rank)
{
    int64_t axis = rb_make_int(import, key, otherwise);

    if (!import->err)
        import->err = rb_import_axis(import, axis, rank, &axis);
    return import->err ? 0 : (int)axis;
}

int rb_make_bind(struct rb_import *import, int i, struct rb_value *value)
{
    if (!import->err && value)
        import->err = rb_import_bind(import, i, value);
    return import->err;
}

int rb_make_bind_places(struct rb_import *import, int i, struct rb_value *places)
{
    import->narrow = import->wide = RB_NONE;
    return rb_make_bind(import, i, places);
}

/* The int64 of x, clamped; x is never a NaN here. */
static int64_t whole(double x)
{
    return x >= 0x1p63 ? INT64_MAX : x > -0x1p63 ? (int64_t)x : INT64_MIN;
}

static void store(enum rb_dtype dtype, void *to, double x)
{
    switch (dtype) {
    case RB_F32:
        *(float *)to = (float)x;
        break;
    case RB_F64:
        *(double *)to = x;
        break;
    case RB_F16:
        *(uint16_t *)to = rb_dtype_to_half((float)x);
        break;
    case RB_BF16:
        *(uint16_t *)to = rb_dtype_to_bfloat((float)x);
        break;
    case RB_I64:
    case RB_U64:
        *(int64_t *)to = whole(x);
        break;
    case RB_I32:
    case RB_U32:
        *(int32_t *)to = (int32_t)whole(x);
        break;
    case RB_I16:
    case RB_U16:
        *(int16_t *)to = (int16_t)whole(x);
        break;
    default:
        *(int8_t *)to = (int8_t)whole(x);
        break;
    }
}

struct rb_value *rb_make_number(struct rb_import *import, enum rb_dtype dtype, double x)
{
    struct rb_tensor_type type = {.dtype = dtype};
    void *data;

    if (import->err)
        return NULL;
    data = rb_arena_alloc(&import->graph->arena, 8);
    store(dtype, data, x);
    return rb_graph_value(import->graph, RB_VALUE_CONST, NULL, &type, data);
}

struct rb_value *rb_make_like(struct rb_import *import, const struct rb_value *like, double x)
{
    return like ? rb_make_number(import, like->type.dtype, x) : NULL;
}

struct rb_value *rb_make_count(struct rb_import *import, int64_t n)
{
    enum { MOST = 1 << 24 };
    int64_t *numbers;

    if (import->err)
        return NULL;
    if (n > MOST)
        return rb_make_no(import, "an axis of %lld", (long long)n);
    numbers = RB_ARENA_NEW(&import->graph->arena, int64_t, n + 1);
    for (int64_t i = 0; i < n; i++)
        numbers[i] = i;
    return rb_graph_int64s(import->graph, NULL, numbers, (int)n);
}

static struct rb_value *make(struct rb_import *import, enum rb_op op, int n_in,
                             struct rb_value *const *in, int n_attributes,
                             const struct rb_graph_attribute *attributes,
                             const struct rb_tensor_type *given)
{
    struct rb_value *out = NULL;

    for (int i = 0; i < n_in; i++)
        if (!in[i] && !import->err)
            return NULL;
    if (!import->err)
        import->err = rb_import_emit(import, op, n_in, in, n_attributes, attributes, given, &out);
    return import->err ? NULL : out;
}

struct rb_value *rb_make_one(struct rb_import *import, enum rb_op op, struct rb_value *x)
{
    return make(import, op, 1, &x, 0, NULL, NULL);
}

struct rb_value *rb_make_two(struct rb_import *import, enum rb_op op, struct rb_value *a,
                             struct rb_value *b)
{
    return make(import, op, 2, (struct rb_value *[]){a, b}, 0, NULL, NULL);
}

struct rb_value *rb_make_where(struct rb_import *import, struct rb_value *c, struct rb_value *a,
                               struct rb_value *b)
{
    return make(import, RB_OP_WHERE, 3, (struct rb_value *[]){c, a, b}, 0, NULL, NULL);
}

struct rb_value *rb_make_times(struct rb_import *import, struct rb_value *x, double factor)
{
    return factor == 1 ? x : rb_make_two(import, RB_OP_MUL, x, rb_make_like(import, x, factor));
}

struct rb_value *rb_make_plus(struct rb_import *import, struct rb_value *x, double term)
{
    return term == 0 ? x : rb_make_two(import, RB_OP_ADD, x, rb_make_like(import, x, term));
}

struct rb_value *rb_make_turned(struct rb_import *import, struct rb_value *x)
{
    return import->narrow == RB_U64 ? rb_make_plus(import, x, -0x1p63) : x;
}

struct rb_value *rb_make_not(struct rb_import *import, struct rb_value *x)
{
    return rb_make_two(import, RB_OP_EQUAL, x, rb_make_number(import, RB_BOOL, 0));
}

struct rb_value *rb_make_cast(struct rb_import *import, struct rb_value *x, enum rb_dtype dtype)
{
    struct rb_value *out = NULL;

    if (!import->err && x)
        import->err = rb_import_cast(import, x, dtype, &out);
    return import->err ? NULL : out;
}

struct rb_value *rb_make_reshape(struct rb_import *import, struct rb_value *x, int rank,
                                 const int64_t *dim)
{
    struct rb_value *out = NULL;

    if (!import->err && x)
        import->err = rb_import_reshape(import, x, rank, dim, &out);
    return import->err ? NULL : out;
}

struct rb_value *rb_make_unsqueeze(struct rb_import *import, struct rb_value *x, int at)
{
    int64_t dim[RB_MAX_RANK + 1];

    if (import->err || !x)
        return NULL;
    for (int i = 0; i <= x->type.rank; i++)
        dim[i] = i == at ? 1 : x->type.dim[i > at ? i - 1 : i];
    return rb_make_reshape(import, x, x->type.rank + 1, dim);
}

struct rb_value *rb_make_squeeze(struct rb_import *import, struct rb_value *x, int at)
{
    int64_t dim[RB_MAX_RANK];
    int rank = 0;

    if (import->err || !x)
        return NULL;
    for (int i = 0; i < x->type.rank; i++)
        if (i != at)
            dim[rank++] = x->type.dim[i];
    return rb_make_reshape(import, x, rank, dim);
}

struct rb_value *rb_make_transpose(struct rb_import *import, struct rb_value *x,
                                   const int64_t *perm)
{
    struct rb_graph_attribute attribute;
    bool moves = false;

    if (import->err || !x)
        return NULL;
    for (int i = 0; i < x->type.rank; i++)
        moves |= perm[i] != i;
    attribute = rb_attr_ints("perm", perm, x->type.rank);
    return moves ? make(import, RB_OP_TRANSPOSE, 1, &x, 1, &attribute, NULL) : x;
}

struct rb_value *rb_make_expand(struct rb_import *import, struct rb_value *x, int rank,
                                const int64_t *dim)
{
    struct rb_tensor_type type;

    if (import->err || !x)
        return NULL;
    type = (struct rb_tensor_type){.dtype = x->type.dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.dim[i] = dim[i];
    return rb_tensor_same(&type, &x->type) ? x : make(import, RB_OP_EXPAND, 1, &x, 0, NULL, &type);
}

struct rb_value *rb_make_slice(struct rb_import *import, struct rb_value *x, int axis,
                               int64_t start, int64_t count, int64_t step)
{
    int64_t starts[RB_MAX_RANK] = {0}, steps[RB_MAX_RANK];
    struct rb_graph_attribute attributes[2];
    struct rb_tensor_type type;

    if (import->err || !x)
        return NULL;
    if (start == 0 && step == 1 && count == x->type.dim[axis])
        return x;
    for (int i = 0; i < RB_MAX_RANK; i++)
        steps[i] = 1;
    starts[axis] = start;
    steps[axis] = step;
    type = x->type;
    type.dim[axis] = count;
    attributes[0] = rb_attr_ints("starts", starts, type.rank);
    attributes[1] = rb_attr_ints("steps", steps, type.rank);
    return make(import, RB_OP_SLICE, 1, &x, 2, attributes, &type);
}

struct rb_value *rb_make_concat(struct rb_import *import, int axis, int n,
                                struct rb_value *const *in)
{
    int64_t at = axis;
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &at, 1);

    return n == 1 ? in[0] : make(import, RB_OP_CONCAT, n, in, 1, &attribute, NULL);
}

struct rb_value *rb_make_gather(struct rb_import *import, struct rb_value *x,
                                struct rb_value *indices, int axis)
{
    return rb_make_with(import, RB_OP_GATHER, 2, (struct rb_value *[]){x, indices}, "axis", axis);
}

struct rb_value *rb_make_reduce(struct rb_import *import, enum rb_op op, struct rb_value *x,
                                const int64_t *axes, int n, bool keep)
{
    struct rb_graph_attribute attribute = rb_attr_ints("axes", axes, n);
    struct rb_tensor_type type;
    unsigned drop = 0;

    if (import->err || !x)
        return NULL;
    for (int i = 0; i < n; i++)
        drop |= 1u << axes[i];
    type = (struct rb_tensor_type){.dtype = x->type.dtype};
    for (int i = 0; i < x->type.rank; i++)
        if (keep || !(drop >> i & 1u))
            type.dim[type.rank++] = drop >> i & 1u ? 1 : x->type.dim[i];
    return make(import, op, 1, &x, 1, &attribute, &type);
}

struct rb_value *rb_make_with(struct rb_import *import, enum rb_op op, int n_in,
                              struct rb_value *const *in, const char *key, int64_t value)
{
    struct rb_graph_attribute attribute = rb_attr_ints(key, &value, 1);

    return make(import, op, n_in, in, key != NULL, &attribute, NULL);
}

struct rb_value *rb_make_matmul(struct rb_import *import, struct rb_value *a, struct rb_value *b,
                                bool trans_b)
{
    return rb_make_with(import, RB_OP_MATMUL, 2, (struct rb_value *[]){a, b},
                        trans_b ? "transB" : NULL, 1);
}
