/* SPDX-License-Identifier: Apache-2.0 */
/* After the last node: which weights are buffers, what can be folded, what nobody reads. */
#include "graph/import/tidy.h"

#include "graph/fold.h"

#include <stdlib.h>

static bool is_real(enum rb_dtype dtype)
{
    return dtype == RB_F32 || dtype == RB_F64 || dtype == RB_F16 || dtype == RB_BF16;
}

static bool is_step(enum rb_op op)
{
    return op == RB_OP_SIGN || op == RB_OP_FLOOR || op == RB_OP_CEIL || op == RB_OP_ROUND;
}

/* What depends on an input of the model. */
static bool *find_data(const struct rb_graph *graph)
{
    bool *data = rb_alloc(sizeof *data * (size_t)graph->n_values);

    for (int i = 0; i < graph->n_values; i++)
        data[i] = graph->values[i]->role == RB_VALUE_INPUT;
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];
        bool any = false;

        for (int j = 0; j < node->n_in; j++)
            any |= node->in[j] && data[node->in[j]->id];
        for (int j = 0; any && j < node->n_out; j++)
            if (node->out[j])
                data[node->out[j]->id] = true;
    }
    return data;
}

/* A gradient flows from a float output to every float input; but the sines and cosines of what no
 * input has a part in are a table (the frequencies of rotary embeddings). */
static bool passes_gradient(const struct rb_node *node, const bool *reached, const bool *data)
{
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] && reached[node->out[i]->id])
            return !is_step(node->op) &&
                   ((node->op != RB_OP_SIN && node->op != RB_OP_COS) || data[node->in[0]->id]);
    return false;
}

/* A float initializer that no gradient can reach (a mask that is only compared) is no weight,
 * though ONNX has no mark for it. */
static void find_buffers(struct rb_graph *graph)
{
    bool *reached = rb_alloc(sizeof *reached * (size_t)graph->n_values);
    bool *data = find_data(graph);

    for (int i = 0; i < graph->n_outputs; i++)
        reached[graph->outputs[i]->id] = is_real(graph->outputs[i]->type.dtype);
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = graph->nodes[i];

        if (!passes_gradient(node, reached, data))
            continue;
        for (int j = 0; j < node->n_in; j++)
            if (node->in[j] && is_real(node->in[j]->type.dtype))
                reached[node->in[j]->id] = true;
    }
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->role == RB_VALUE_WEIGHT && !reached[i]) {
            graph->values[i]->role = RB_VALUE_BUFFER;
            graph->values[i]->frozen = false;
        }
    free(reached);
    free(data);
}

/* Inputs, weights and float buffers are the model's own and stay; integers that only told import
 * something (a shape, axes) go with the other values that nobody reads. */
static void drop_values(struct rb_graph *graph, const bool *read)
{
    int kept = 0;

    for (int i = 0; i < graph->n_values; i++) {
        struct rb_value *value = graph->values[i];
        bool own = value->role == RB_VALUE_INPUT || value->role == RB_VALUE_WEIGHT ||
                   (value->role == RB_VALUE_BUFFER && value->type.dtype == RB_F32);

        if (!own && !read[i])
            continue;
        value->id = kept;
        graph->values[kept++] = value;
    }
    graph->n_values = kept;
}

/* Has the operator kernels for numbers of this type? */
static bool computes(enum rb_op op, enum rb_dtype dtype)
{
    enum rb_op_kind kind = rb_op_info(op)->kind;
    bool moves =
        kind == RB_KIND_VIEW || kind == RB_KIND_MOVE || op == RB_OP_CAST || op == RB_OP_WHERE;

    switch (dtype) {
    case RB_U8:
    case RB_BOOL:
        return kind != RB_KIND_REDUCE && kind != RB_KIND_ROW;
    case RB_F32:
    case RB_I64:
    case RB_I32:
        return true; /* what else is needed was checked by the operator's own rule */
    case RB_F64:
        return moves || kind == RB_KIND_POINT || kind == RB_KIND_REDUCE || op == RB_OP_CUM_SUM ||
               op == RB_OP_TOP_K;
    default:
        return moves;
    }
}

static int check_value(const struct rb_node *node, const struct rb_value *value, struct rb_why *why)
{
    enum rb_op_kind kind = rb_op_info(node->op)->kind;

    if (!value)
        return 0;
    if (!computes(node->op, value->type.dtype))
        return rb_why_set(why, RB_EUNSUPPORTED, "node '%s' (%s): %s is not supported", node->name,
                          rb_op_info(node->op)->name, rb_dtype_text(value->type.dtype));
    if (!rb_tensor_elements(&value->type) && kind != RB_KIND_MOVE && kind != RB_KIND_VIEW)
        return rb_why_set(why, RB_EUNSUPPORTED, "node '%s' (%s): a tensor without elements",
                          node->name, rb_op_info(node->op)->name);
    return 0;
}

static int check_nodes(const struct rb_graph *graph, struct rb_why *why)
{
    int err = 0;

    for (int i = 0; !err && i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];

        for (int j = 0; !err && j < node->n_in; j++)
            err = check_value(node, node->in[j], why);
        for (int j = 0; !err && j < node->n_out; j++)
            err = check_value(node, node->out[j], why);
    }
    return err;
}

int rb_import_tidy(struct rb_graph *graph, struct rb_why *why)
{
    bool *read;
    int err;

    find_buffers(graph);
    err = rb_fold(graph, why);
    if (err)
        return err;
    read = rb_alloc(sizeof *read * (size_t)graph->n_values);
    rb_graph_sweep(graph, read);
    drop_values(graph, read);
    free(read);
    return check_nodes(graph, why);
}
