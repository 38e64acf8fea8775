/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <string.h>

static rb_shapes_rule *const rules[RB_OP_COUNT] = {
    [RB_OP_RESHAPE] = rb_shapes_reshape,
    [RB_OP_DETACH] = rb_shapes_unary,
    [RB_OP_ADD] = rb_shapes_point,
    [RB_OP_SUB] = rb_shapes_point,
    [RB_OP_MUL] = rb_shapes_point,
    [RB_OP_DIV] = rb_shapes_point,
    [RB_OP_POW] = rb_shapes_point,
    [RB_OP_MAX] = rb_shapes_point,
    [RB_OP_MIN] = rb_shapes_point,
    [RB_OP_MOD] = rb_shapes_point,
    [RB_OP_EQUAL] = rb_shapes_compare,
    [RB_OP_LESS] = rb_shapes_compare,
    [RB_OP_GREATER] = rb_shapes_compare,
    [RB_OP_WHERE] = rb_shapes_where,
    [RB_OP_NEG] = rb_shapes_unary,
    [RB_OP_ABS] = rb_shapes_unary,
    [RB_OP_SIGN] = rb_shapes_unary,
    [RB_OP_EXP] = rb_shapes_unary,
    [RB_OP_EXPM1] = rb_shapes_unary,
    [RB_OP_LOG] = rb_shapes_unary,
    [RB_OP_SQRT] = rb_shapes_unary,
    [RB_OP_RECIPROCAL] = rb_shapes_unary,
    [RB_OP_FLOOR] = rb_shapes_unary,
    [RB_OP_CEIL] = rb_shapes_unary,
    [RB_OP_ROUND] = rb_shapes_unary,
    [RB_OP_SIN] = rb_shapes_unary,
    [RB_OP_COS] = rb_shapes_unary,
    [RB_OP_TAN] = rb_shapes_unary,
    [RB_OP_ASIN] = rb_shapes_unary,
    [RB_OP_ACOS] = rb_shapes_unary,
    [RB_OP_ATAN] = rb_shapes_unary,
    [RB_OP_SINH] = rb_shapes_unary,
    [RB_OP_COSH] = rb_shapes_unary,
    [RB_OP_ASINH] = rb_shapes_unary,
    [RB_OP_ACOSH] = rb_shapes_unary,
    [RB_OP_ATANH] = rb_shapes_unary,
    [RB_OP_SOFTPLUS] = rb_shapes_unary,
    [RB_OP_TANH] = rb_shapes_unary,
    [RB_OP_SIGMOID] = rb_shapes_unary,
    [RB_OP_ERF] = rb_shapes_unary,
    [RB_OP_RELU] = rb_shapes_unary,
    [RB_OP_GELU] = rb_shapes_unary,
    [RB_OP_CAST] = rb_shapes_cast,
    [RB_OP_RELU_GRAD] = rb_shapes_unary_grad,
    [RB_OP_GELU_GRAD] = rb_shapes_unary_grad,
    [RB_OP_TANH_GRAD] = rb_shapes_unary_grad,
    [RB_OP_SIGMOID_GRAD] = rb_shapes_unary_grad,
    [RB_OP_ERF_GRAD] = rb_shapes_unary_grad,
    [RB_OP_TRANSPOSE] = rb_shapes_transpose,
    [RB_OP_EXPAND] = rb_shapes_expand,
    [RB_OP_CONCAT] = rb_shapes_concat,
    [RB_OP_SPLIT] = rb_shapes_split,
    [RB_OP_SLICE] = rb_shapes_slice,
    [RB_OP_SLICE_GRAD] = rb_shapes_slice_grad,
    [RB_OP_TRILU] = rb_shapes_trilu,
    [RB_OP_GATHER] = rb_shapes_gather,
    [RB_OP_GATHER_GRAD] = rb_shapes_gather_grad,
    [RB_OP_GATHER_ELEMENTS] = rb_shapes_gather_elements,
    [RB_OP_SCATTER] = rb_shapes_scatter,
    [RB_OP_REDUCE_SUM] = rb_shapes_reduce,
    [RB_OP_REDUCE_MEAN] = rb_shapes_reduce,
    [RB_OP_REDUCE_MAX] = rb_shapes_reduce,
    [RB_OP_ARG_MAX] = rb_shapes_arg_max,
    [RB_OP_CUM_SUM] = rb_shapes_cum_sum,
    [RB_OP_TOP_K] = rb_shapes_top_k,
    [RB_OP_SOFTMAX] = rb_shapes_row,
    [RB_OP_SOFTMAX_GRAD] = rb_shapes_row_grad,
    [RB_OP_LOG_SOFTMAX] = rb_shapes_row,
    [RB_OP_LOG_SOFTMAX_GRAD] = rb_shapes_row_grad,
    [RB_OP_MATMUL] = rb_shapes_matmul,
    [RB_OP_CONV] = rb_shapes_conv,
    [RB_OP_ATTENTION] = rb_shapes_attention,
    [RB_OP_ATTENTION_GRAD] = rb_shapes_attention_grad,
    [RB_OP_CONV_GRAD_X] = rb_shapes_conv_grad_x,
    [RB_OP_CONV_GRAD_W] = rb_shapes_conv_grad_w,
    [RB_OP_LAYER_NORM] = rb_shapes_layer_norm,
    [RB_OP_LAYER_NORM_GRAD] = rb_shapes_layer_norm_grad,
    [RB_OP_BATCH_NORM] = rb_shapes_batch_norm,
    [RB_OP_BATCH_NORM_EVAL] = rb_shapes_batch_norm_eval,
    [RB_OP_BATCH_NORM_GRAD] = rb_shapes_batch_norm_grad,
    [RB_OP_MAX_POOL] = rb_shapes_max_pool,
    [RB_OP_MAX_POOL_GRAD] = rb_shapes_max_pool_grad,
    [RB_OP_AVERAGE_POOL] = rb_shapes_average_pool,
    [RB_OP_AVERAGE_POOL_GRAD] = rb_shapes_average_pool_grad,
    [RB_OP_DROPOUT] = rb_shapes_dropout,
    [RB_OP_DROPOUT_GRAD] = rb_shapes_dropout,
    [RB_OP_CROSS_ENTROPY] = rb_shapes_cross_entropy,
    [RB_OP_CROSS_ENTROPY_GRAD] = rb_shapes_cross_entropy_grad,
    [RB_OP_MSE] = rb_shapes_elementwise_loss,
    [RB_OP_MSE_GRAD] = rb_shapes_elementwise_loss_grad,
    [RB_OP_BCE_LOGITS] = rb_shapes_elementwise_loss,
    [RB_OP_BCE_LOGITS_GRAD] = rb_shapes_elementwise_loss_grad,
    [RB_OP_GRAPH_LOSS] = rb_shapes_graph_loss,
    [RB_OP_SPREAD] = rb_shapes_exchange,
    [RB_OP_FOLD] = rb_shapes_exchange,
    [RB_OP_FUSED] = rb_shapes_fused,
    [RB_OP_UNIFORM] = rb_shapes_uniform,
};

int rb_shapes_infer(struct rb_shapes *shapes)
{
    int err;

    if (!rules[shapes->node->op])
        return rb_why_set(shapes->why, RB_EINTERNAL, "operator %d has no shape rule",
                          (int)shapes->node->op);
    err = rules[shapes->node->op](shapes);
    for (int i = 0; !err && i < shapes->node->n_out; i++)
        err = rb_shapes_check(&shapes->out[i], shapes->why);
    return err;
}

int rb_shapes_check(const struct rb_tensor_type *type, struct rb_why *why)
{
    const int64_t most = INT64_C(1) << 46;
    int64_t bytes = (int64_t)rb_dtype_size(type->dtype);

    if (type->rank < 0 || type->rank > RB_MAX_RANK)
        return rb_why_set(why, RB_EINVAL, "%d axes; the most is %d", type->rank, RB_MAX_RANK);
    if (!bytes)
        return rb_why_set(why, RB_EUNSUPPORTED, "element type %d is not supported",
                          (int)type->dtype);
    for (int i = 0; i < type->rank; i++) {
        if (type->dim[i] < 0)
            return rb_why_set(why, RB_EINVAL, "axis %d has the size %" PRId64, i, type->dim[i]);
        /* A zero must not hide the size of the axes beside it. */
        if (type->dim[i] && (__builtin_mul_overflow(bytes, type->dim[i], &bytes) || bytes > most))
            return rb_why_set(why, RB_ELIMIT, "a tensor above 2^46 bytes");
    }
    return 0;
}

bool rb_shapes_same_but_ones(const struct rb_tensor_type *a, const struct rb_tensor_type *b)
{
    int i = 0, j = 0;

    for (;;) {
        while (i < a->rank && a->dim[i] == 1)
            i++;
        while (j < b->rank && b->dim[j] == 1)
            j++;
        if (i == a->rank || j == b->rank)
            return i == a->rank && j == b->rank;
        if (a->dim[i++] != b->dim[j++])
            return false;
    }
}

bool rb_shapes_broadcast_dims(int64_t *a, int *n_a, const int64_t *b, int n_b)
{
    int rank = *n_a > n_b ? *n_a : n_b;
    int64_t dim[RB_MAX_RANK];

    for (int i = 0; i < rank; i++) {
        int64_t da = i < rank - *n_a ? 1 : a[i - (rank - *n_a)];
        int64_t db = i < rank - n_b ? 1 : b[i - (rank - n_b)];

        if (da != db && da != 1 && db != 1)
            return false;
        dim[i] = da == 1 ? db : da;
    }
    memcpy(a, dim, sizeof dim[0] * (size_t)rank);
    *n_a = rank;
    return true;
}

const struct rb_tensor_type *rb_shapes_in(struct rb_shapes *shapes, int i)
{
    if (i < shapes->node->n_in && shapes->node->in[i])
        return &shapes->node->in[i]->type;
    rb_why_set(shapes->why, RB_EINVAL, "input %d is missing", i);
    return NULL;
}

const int64_t *rb_shapes_ints(struct rb_shapes *shapes, const char *key, int n)
{
    const struct rb_graph_attribute *attribute = rb_node_attribute(shapes->node, key);

    if (attribute && (n < 0 || attribute->n_ints == n))
        return attribute->ints;
    rb_why_set(shapes->why, RB_EINVAL, "%s: %d integers are needed, there are %d", key, n,
               attribute ? attribute->n_ints : 0);
    return NULL;
}

int rb_shapes_axis(struct rb_shapes *shapes, int rank, int *ret_axis)
{
    int64_t axis = rb_node_int(shapes->node, "axis", -1);

    if (axis < 0 || axis >= rank)
        return rb_why_set(shapes->why, RB_EINVAL, "axis %" PRId64 " of a tensor of %d axes", axis,
                          rank);
    *ret_axis = (int)axis;
    return 0;
}

int rb_shapes_want_f32(struct rb_shapes *shapes, int i)
{
    const struct rb_tensor_type *type = rb_shapes_in(shapes, i);

    if (!type)
        return RB_EINVAL;
    if (type->dtype != RB_F32)
        return rb_why_set(shapes->why, RB_EUNSUPPORTED, "input %d is %s; float32 is needed", i,
                          rb_dtype_text(type->dtype));
    return 0;
}

int rb_shapes_want_given(struct rb_shapes *shapes)
{
    if (!shapes->given)
        return rb_why_set(shapes->why, RB_EINTERNAL, "the output's type must be given");
    return rb_shapes_check(shapes->given, shapes->why);
}

int rb_shapes_want_same(struct rb_shapes *shapes, int i, int j)
{
    const struct rb_tensor_type *a = rb_shapes_in(shapes, i);
    const struct rb_tensor_type *b = rb_shapes_in(shapes, j);
    char text_a[RB_TENSOR_TEXT], text_b[RB_TENSOR_TEXT];

    if (!a || !b)
        return RB_EINVAL;
    if (!rb_tensor_same_shape(a, b))
        return rb_why_set(shapes->why, RB_EINVAL, "inputs %d and %d differ in shape: %s and %s", i,
                          j, rb_tensor_text(a, text_a), rb_tensor_text(b, text_b));
    return 0;
}
