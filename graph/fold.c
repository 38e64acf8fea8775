/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/fold.h"

#include "graph/shapes/shapes.h"

enum {
    MOST_BYTES = 16 << 20, /* of one folded node: a larger one is left to the kernels */
    MOST_MEMORY = 1 << 30, /* of the graph: a hostile file folds no more after that */
};

bool rb_fold_known(const struct rb_value *value)
{
    return value->data &&
           (value->role == RB_VALUE_CONST || (value->role == RB_VALUE_BUFFER && !value->statistic));
}

double rb_fold_real(const struct rb_value *value, int64_t i)
{
    switch (value->type.dtype) {
    case RB_F32:
        return (double)((const float *)value->data)[i];
    case RB_F64:
        return ((const double *)value->data)[i];
    case RB_F16:
        return (double)rb_dtype_half(((const uint16_t *)value->data)[i]);
    case RB_BF16:
        return (double)rb_dtype_bfloat(((const uint16_t *)value->data)[i]);
    case RB_U64:
        return (double)((const uint64_t *)value->data)[i];
    default:
        return (double)rb_fold_integer(value, i);
    }
}

static int64_t cut(double x)
{
    if (!(x == x))
        return 0;
    if (x >= 0x1p63)
        return INT64_MAX;
    return x <= -0x1p63 ? INT64_MIN : (int64_t)x;
}

int64_t rb_fold_integer(const struct rb_value *value, int64_t i)
{
    switch (value->type.dtype) {
    case RB_I64:
        return ((const int64_t *)value->data)[i];
    case RB_U64:
        return (int64_t)((const uint64_t *)value->data)[i];
    case RB_I32:
        return ((const int32_t *)value->data)[i];
    case RB_U32:
        return ((const uint32_t *)value->data)[i];
    case RB_I16:
        return ((const int16_t *)value->data)[i];
    case RB_U16:
        return ((const uint16_t *)value->data)[i];
    case RB_I8:
        return ((const int8_t *)value->data)[i];
    case RB_U8:
    case RB_BOOL:
        return ((const uint8_t *)value->data)[i];
    default:
        return cut(rb_fold_real(value, i));
    }
}

uint64_t rb_fold_unsigned(const struct rb_value *value, int64_t i)
{
    double x = rb_dtype_is_real(value->type.dtype) ? rb_fold_real(value, i) : 0;

    if (!(x >= 0x1p63))
        return (uint64_t)rb_fold_integer(value, i);
    return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

int64_t rb_fold_broadcast_at(const struct rb_tensor_type *type, int64_t index,
                             const struct rb_tensor_type *from)
{
    int64_t at = 0, stride = 1;

    for (int i = type->rank - 1, j = from->rank - 1; j >= 0; i--, j--) {
        int64_t coordinate = index % type->dim[i];

        index /= type->dim[i];
        if (from->dim[j] != 1)
            at += coordinate * stride;
        stride *= from->dim[j];
    }
    return at;
}

static bool small_enough(const struct rb_graph *graph, const struct rb_node *node)
{
    int64_t bytes = 0;

    for (int i = 0; i < node->n_out; i++)
        if (node->out[i])
            bytes += rb_tensor_elements(&node->out[i]->type) *
                     (int64_t)rb_dtype_size(node->out[i]->type.dtype);
    return bytes <= MOST_BYTES && graph->arena.used <= (size_t)MOST_MEMORY;
}

/* 1: the outputs of the node are constants now. */
static int fold_node(struct rb_graph *graph, const struct rb_node *node, struct rb_why *why)
{
    const bool view = rb_op_info(node->op)->kind == RB_KIND_VIEW;
    void *data[RB_SHAPES_OUTPUTS] = {0};
    int done;

    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && !rb_fold_known(node->in[i]))
            return 0;
    if (view)
        data[0] = (void *)node->in[0]->data;
    else if (!small_enough(graph, node))
        return 0;
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] && !data[i])
            data[i] =
                rb_arena_alloc(&graph->arena, (size_t)rb_tensor_elements(&node->out[i]->type) *
                                                  rb_dtype_size(node->out[i]->type.dtype));
    done = view ? 1 : rb_fold_point(node, data, why);
    if (!done)
        done = rb_fold_move(node, data, why);
    if (done != 1)
        return done;
    for (int i = 0; i < node->n_out; i++) {
        if (!node->out[i])
            continue;
        node->out[i]->role = RB_VALUE_CONST;
        node->out[i]->data = data[i];
        node->out[i]->maker = NULL;
        node->out[i]->output = 0;
    }
    return 1;
}

int rb_fold_newest(struct rb_graph *graph, struct rb_why *why)
{
    int done = fold_node(graph, graph->nodes[graph->n_nodes - 1], why);

    if (done == 1)
        graph->n_nodes--;
    return done < 0 ? done : 0;
}

int rb_fold(struct rb_graph *graph, struct rb_why *why)
{
    int kept = 0;

    for (int i = 0; i < graph->n_nodes; i++) {
        struct rb_node *node = graph->nodes[i];
        int done = fold_node(graph, node, why);

        if (done < 0)
            return rb_why_add(why, done, "node '%s'", node->name);
        if (done == 1)
            continue;
        node->id = kept;
        graph->nodes[kept++] = node;
    }
    graph->n_nodes = kept;
    return 0;
}
