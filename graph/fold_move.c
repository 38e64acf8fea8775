/* SPDX-License-Identifier: Apache-2.0 */
/* Folding of operators that only move elements (of any type), and of small sums. */
#include "graph/fold.h"

#include <string.h>

static void copy(const struct rb_node *node, void *data, int64_t to, const struct rb_value *from,
                 int64_t at)
{
    size_t width = rb_dtype_size(node->out[0]->type.dtype);

    memcpy((uint8_t *)data + (size_t)to * width, (const uint8_t *)from->data + (size_t)at * width,
           width);
}

/* Row-major coordinates of element `index`. */
static void coordinates(const struct rb_tensor_type *type, int64_t index, int64_t *ret)
{
    for (int i = type->rank - 1; i >= 0; i--) {
        ret[i] = index % type->dim[i];
        index /= type->dim[i];
    }
}

static int64_t index_of(const struct rb_tensor_type *type, const int64_t *at)
{
    int64_t index = 0;

    for (int i = 0; i < type->rank; i++)
        index = index * type->dim[i] + at[i];
    return index;
}

static void fold_where(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->out[0]->type;
    const uint8_t *condition = node->in[0]->data;
    int64_t n = rb_tensor_elements(type);

    for (int64_t i = 0; i < n; i++) {
        bool yes = condition[rb_fold_broadcast_at(type, i, &node->in[0]->type)];
        const struct rb_value *from = node->in[yes ? 1 : 2];

        copy(node, data, i, from, rb_fold_broadcast_at(type, i, &from->type));
    }
}

static void fold_expand(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->out[0]->type;
    int64_t n = rb_tensor_elements(type);

    for (int64_t i = 0; i < n; i++)
        copy(node, data, i, node->in[0], rb_fold_broadcast_at(type, i, &node->in[0]->type));
}

static void fold_transpose(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->out[0]->type;
    const int64_t *perm = rb_node_attribute(node, "perm")->ints;
    int64_t n = rb_tensor_elements(type), out[RB_MAX_RANK], in[RB_MAX_RANK];

    for (int64_t i = 0; i < n; i++) {
        coordinates(type, i, out);
        for (int j = 0; j < type->rank; j++)
            in[perm[j]] = out[j];
        copy(node, data, i, node->in[0], index_of(&node->in[0]->type, in));
    }
}

static void fold_slice(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->out[0]->type;
    const int64_t *starts = rb_node_attribute(node, "starts")->ints;
    const int64_t *steps = rb_node_attribute(node, "steps")->ints;
    int64_t n = rb_tensor_elements(type), at[RB_MAX_RANK];

    for (int64_t i = 0; i < n; i++) {
        coordinates(type, i, at);
        for (int j = 0; j < type->rank; j++)
            at[j] = starts[j] + at[j] * steps[j];
        copy(node, data, i, node->in[0], index_of(&node->in[0]->type, at));
    }
}

static void fold_trilu(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->out[0]->type;
    bool upper = rb_node_int(node, "upper", 1);
    int64_t k = rb_node_int(node, "k", 0);
    int64_t rows = type->dim[type->rank - 2], columns = type->dim[type->rank - 1];
    int64_t n = rb_tensor_elements(type);

    for (int64_t i = 0; i < n; i++) {
        int64_t row = i / columns % rows, column = i % columns;

        /* The importer keeps k within the matrix, so that nothing overflows. */
        if (upper ? column >= row + k : column <= row + k)
            copy(node, data, i, node->in[0], i);
    }
}

static int fold_gather(const struct rb_node *node, void *data, struct rb_why *why)
{
    const struct rb_value *x = node->in[0], *indices = node->in[1];
    int64_t axis = rb_node_int(node, "axis", 0), size = x->type.dim[axis];
    int64_t outer = 1, inner = 1, n = rb_tensor_elements(&indices->type), to = 0;

    for (int i = 0; i < axis; i++)
        outer *= x->type.dim[i];
    for (int i = (int)axis + 1; i < x->type.rank; i++)
        inner *= x->type.dim[i];
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t j = 0; j < n; j++) {
            int64_t index = rb_fold_integer(indices, j);

            if (index < -size || index >= size)
                return rb_why_set(why, RB_EINVAL, "index %lld is outside an axis of %lld",
                                  (long long)index, (long long)size);
            index += index < 0 ? size : 0;
            for (int64_t k = 0; k < inner; k++)
                copy(node, data, to++, x, (o * size + index) * inner + k);
        }
    }
    return 1;
}

/* The last update stays; an update whose index is outside is dropped, as in the kernels. */
static int fold_scatter(const struct rb_node *node, void *data)
{
    const struct rb_value *x = node->in[0], *indices = node->in[1];
    int64_t axis = rb_node_int(node, "axis", 0), size = x->type.dim[axis], at[RB_MAX_RANK];

    if (rb_node_int(node, "reduction", RB_SCATTER_SET) != RB_SCATTER_SET)
        return 0;
    for (int64_t i = 0; i < rb_tensor_elements(&x->type); i++)
        copy(node, data, i, x, i);
    for (int64_t i = 0; i < rb_tensor_elements(&indices->type); i++) {
        int64_t index = rb_fold_integer(indices, i);

        if (index < -size || index >= size)
            continue;
        coordinates(&indices->type, i, at);
        at[axis] = index + (index < 0 ? size : 0);
        copy(node, data, index_of(&x->type, at), node->in[2], i);
    }
    return 1;
}

static void fold_concat(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->out[0]->type;
    int64_t axis = rb_node_int(node, "axis", 0), outer = 1, inner = 1, to = 0;

    for (int i = 0; i < axis; i++)
        outer *= type->dim[i];
    for (int i = (int)axis + 1; i < type->rank; i++)
        inner *= type->dim[i];
    for (int64_t o = 0; o < outer; o++)
        for (int j = 0; j < node->n_in; j++) {
            int64_t run = node->in[j]->type.dim[axis] * inner;

            for (int64_t k = 0; k < run; k++)
                copy(node, data, to++, node->in[j], o * run + k);
        }
}

static int fold_split(const struct rb_node *node, void *const *data)
{
    const struct rb_tensor_type *x = &node->in[0]->type;
    size_t width = rb_dtype_size(x->dtype), inner = width, from = 0;
    int64_t axis = rb_node_int(node, "axis", 0), outer = 1;

    for (int i = 0; i < node->n_out; i++)
        if (!node->out[i])
            return 0;
    for (int i = 0; i < axis; i++)
        outer *= x->dim[i];
    for (int i = (int)axis + 1; i < x->rank; i++)
        inner *= (size_t)x->dim[i];
    for (int64_t o = 0; o < outer; o++)
        for (int j = 0; j < node->n_out; j++) {
            size_t run = (size_t)node->out[j]->type.dim[axis] * inner;

            if (run)
                memcpy((uint8_t *)data[j] + (size_t)o * run,
                       (const uint8_t *)node->in[0]->data + from, run);
            from += run;
        }
    return 1;
}

/* Sums and maxima of int64: shape arithmetic.  Float sums are left to the kernels, whose order
 * decides bits. */
static int fold_reduce(const struct rb_node *node, void *data)
{
    const struct rb_tensor_type *type = &node->in[0]->type;
    const struct rb_graph_attribute *axes = rb_node_attribute(node, "axes");
    int64_t n = rb_tensor_elements(type), at[RB_MAX_RANK];
    struct rb_tensor_type kept = *type;
    int64_t *results = data;

    if (type->dtype != RB_I64 || (node->op == RB_OP_REDUCE_MAX && !n))
        return 0;
    for (int64_t i = 0; i < rb_tensor_elements(&node->out[0]->type); i++)
        results[i] = node->op == RB_OP_REDUCE_MAX ? INT64_MIN : 0;
    for (int i = 0; i < axes->n_ints; i++)
        kept.dim[axes->ints[i]] = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t x = rb_fold_integer(node->in[0], i), to;

        coordinates(type, i, at);
        for (int j = 0; j < axes->n_ints; j++)
            at[axes->ints[j]] = 0;
        to = index_of(&kept, at);
        if (node->op == RB_OP_REDUCE_SUM)
            results[to] = (int64_t)((uint64_t)results[to] + (uint64_t)x);
        else
            results[to] = x > results[to] ? x : results[to];
    }
    return 1;
}

int rb_fold_move(const struct rb_node *node, void *const *data, struct rb_why *why)
{
    switch (node->op) {
    case RB_OP_WHERE:
        fold_where(node, data[0]);
        return 1;
    case RB_OP_EXPAND:
        fold_expand(node, data[0]);
        return 1;
    case RB_OP_TRANSPOSE:
        fold_transpose(node, data[0]);
        return 1;
    case RB_OP_SLICE:
        fold_slice(node, data[0]);
        return 1;
    case RB_OP_TRILU:
        fold_trilu(node, data[0]);
        return 1;
    case RB_OP_GATHER:
        return fold_gather(node, data[0], why);
    case RB_OP_SCATTER:
        return fold_scatter(node, data[0]);
    case RB_OP_CONCAT:
        fold_concat(node, data[0]);
        return 1;
    case RB_OP_SPLIT:
        return fold_split(node, data);
    case RB_OP_REDUCE_SUM:
    case RB_OP_REDUCE_MAX:
        return fold_reduce(node, data[0]);
    default:
        return 0;
    }
}
