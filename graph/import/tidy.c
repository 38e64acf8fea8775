/* SPDX-License-Identifier: Apache-2.0 */
/* After the last node: fold what can be folded, drop values that are not read, refuse what cannot
 * be computed. */
#include "graph/import/tidy.h"

#include "graph/fold.h"
#include "graph/import/buffers.h"
#include "graph/import/paths.h"

#include <stdlib.h>

/* Inputs, weights and float buffers are the model's own and stay; integers that only informed
 * import (a shape, axes) go with the other values that are not read. */
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
        return true; /* the operator's own rule has checked the rest */
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

    rb_import_find_buffers(graph);
    if (!graph->train)
        rb_import_keep_paths(graph);
    err = rb_fold(graph, why);
    if (err)
        return err;
    read = rb_alloc(sizeof *read * (size_t)graph->n_values);
    rb_graph_sweep(graph, read);
    drop_values(graph, read);
    free(read);
    return check_nodes(graph, why);
}
