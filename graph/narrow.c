/* SPDX-License-Identifier: Apache-2.0 */
/* Precision bf16: which values are kept as bfloat16.
 *
 * Products (MatMul, Conv and their gradients) take factors of bfloat16 and sum them in float32.  A
 * value that only products read, perhaps behind moves, and sums beside them (a bias takes its
 * gradient from one), is rounded by the node that makes it, and moves move half as much.  A value
 * that other nodes read too stays float32 and has a rounded copy, made right before the first
 * product that takes it.  Either way it is rounded once, and everything but products computes in
 * float32.  The result of a Relu may be rounded although its gradient reads it too.
 *
 * Operators alone decide, never sizes: the programs of one job, of all batch sizes, round alike. */
#include "graph/train.h"

/* The forms in which a value is needed, by its id.  Neither: it may be rounded or not. */
struct demand {
    bool narrow;               /* a product takes it rounded */
    bool wide;                 /* a node takes it unrounded */
    struct rb_value *narrowed; /* the rounded copy; NULL: not made yet */
};

/* In which form a node takes its inputs; for a product, its factors. */
enum taste { WIDE, EITHER, NARROW };

struct narrow {
    struct rb_graph *graph;
    struct rb_why *why;
    int err; /* the first error */
    struct demand *demands;
    int n_values;       /* that were there before */
    enum taste *tastes; /* by place of a node */
};

static bool is_attention(const struct rb_node *node)
{
    return node->op == RB_OP_ATTENTION || node->op == RB_OP_ATTENTION_GRAD;
}

static bool is_product(const struct rb_node *node)
{
    return node->op == RB_OP_MATMUL || node->op == RB_OP_CONV || node->op == RB_OP_CONV_GRAD_X ||
           node->op == RB_OP_CONV_GRAD_W || is_attention(node);
}

/* Rounding before a move is the same as rounding behind it. */
static bool is_move(const struct rb_node *node)
{
    return node->op == RB_OP_RESHAPE || node->op == RB_OP_TRANSPOSE || node->op == RB_OP_EXPAND ||
           node->op == RB_OP_CONCAT || node->op == RB_OP_SPLIT;
}

/* How many of the first outputs may be rounded as they are written. */
static int n_rounded(const struct rb_node *node)
{
    switch (node->op) {
    case RB_OP_CONV_GRAD_W:
    case RB_OP_WHERE:
    case RB_OP_CAST:
        return 0;
    case RB_OP_ATTENTION_GRAD:
        return node->n_out;
    case RB_OP_BATCH_NORM_GRAD:
    case RB_OP_LAYER_NORM:
    case RB_OP_SOFTMAX:
    case RB_OP_SOFTMAX_GRAD:
    case RB_OP_DROPOUT:
    case RB_OP_DROPOUT_GRAD:
        return 1;
    default:
        return is_product(node) || rb_op_info(node->op)->kind == RB_KIND_POINT;
    }
}

static bool all_floats(const struct rb_node *node)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && node->in[i]->type.dtype != RB_F32)
            return false;
    return true;
}

static const struct demand *demand_of(const struct narrow *narrow, const struct rb_value *value)
{
    return value ? &narrow->demands[value->id] : NULL;
}

/* A move takes the form that its readers take. */
static enum taste taste_of(const struct narrow *narrow, const struct rb_node *node)
{
    enum taste taste = node->n_in == 1 ? EITHER : WIDE;

    if (!all_floats(node))
        return WIDE;
    if (is_product(node))
        return NARROW;
    if (node->op == RB_OP_REDUCE_SUM)
        return EITHER;
    for (int i = 0; i < node->n_out && is_move(node); i++) {
        const struct demand *demand = demand_of(narrow, node->out[i]);

        if (demand && demand->wide)
            return WIDE;
        if (demand && demand->narrow)
            taste = NARROW;
    }
    return is_move(node) ? taste : WIDE;
}

/* How many of the first inputs are factors, or are moved. */
static int n_taken(const struct rb_node *node)
{
    if (is_attention(node))
        return node->op == RB_OP_ATTENTION ? 3 : 5;
    return is_product(node) && node->n_in > 2 ? 2 : node->n_in;
}

/* Does input j count only by whether it is above 0?  Rounding leaves that. */
static bool is_asked_its_sign(const struct rb_node *node, int j)
{
    return node->op == RB_OP_RELU_GRAD && j == 1;
}

static void want_wide(struct narrow *narrow, const struct rb_value *value)
{
    if (value)
        narrow->demands[value->id].wide = true;
}

/* From the last node to the first: the readers of a value come before its maker. */
static void find_demands(struct narrow *narrow)
{
    const struct rb_graph *graph = narrow->graph;

    want_wide(narrow, graph->loss);
    want_wide(narrow, graph->count);
    want_wide(narrow, graph->correct);
    for (int i = 0; i < graph->n_outputs; i++)
        want_wide(narrow, graph->outputs[i]);
    for (int i = 0; i < graph->n_contributions; i++)
        want_wide(narrow, graph->contributions[i].value);
    for (int i = 0; i < graph->n_values; i++) {
        want_wide(narrow, graph->values[i]->update);
        if (graph->values[i]->role != RB_VALUE_TEMP) /* kept elsewhere, unrounded */
            want_wide(narrow, graph->values[i]);
    }
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = graph->nodes[i];

        narrow->tastes[i] = taste_of(narrow, node);
        for (int j = 0; j < node->n_in; j++) {
            if (is_asked_its_sign(node, j))
                continue;
            if (narrow->tastes[i] == WIDE || j >= n_taken(node))
                want_wide(narrow, node->in[j]);
            else if (narrow->tastes[i] == NARROW && node->in[j])
                narrow->demands[node->in[j]->id].narrow = true;
        }
    }
}

/* The rounded form of a value; a view of it where the value is a view. */
static struct rb_value *narrowed(struct narrow *narrow, struct rb_value *value)
{
    struct demand *demand;
    struct rb_tensor_type type = value->type;
    struct rb_node *node = NULL;
    struct rb_value *from = value;
    enum rb_op op = RB_OP_CAST;

    if (value->id >= narrow->n_values || value->type.dtype != RB_F32)
        return value;
    demand = &narrow->demands[value->id];
    if (demand->narrowed)
        return demand->narrowed;
    if (value->maker && value->maker->op == RB_OP_RESHAPE) {
        op = RB_OP_RESHAPE;
        from = narrowed(narrow, value->maker->in[0]);
    }
    type.dtype = RB_BF16;
    if (!narrow->err)
        narrow->err = rb_graph_node(narrow->graph, op, value->name, 1, &from, 0, NULL, 1, &type,
                                    &node, narrow->why);
    demand->narrowed = narrow->err ? value : node->out[0];
    return demand->narrowed;
}

static void round_output(const struct narrow *narrow, struct rb_value *value)
{
    const struct demand *demand = demand_of(narrow, value);

    if (demand && demand->narrow && !demand->wide && value->type.dtype == RB_F32)
        value->type.dtype = RB_BF16;
}

static void narrow_node(struct narrow *narrow, int place)
{
    struct rb_node *node = narrow->graph->nodes[place];
    enum taste taste = narrow->tastes[place];

    for (int j = 0; taste == NARROW && j < n_taken(node); j++)
        node->in[j] = narrowed(narrow, node->in[j]);
    for (int j = 0; taste != WIDE && is_move(node) && j < node->n_out; j++)
        if (node->out[j])
            node->out[j]->type.dtype = node->in[0]->type.dtype;
    for (int j = 0; j < node->n_out && j < n_rounded(node); j++)
        round_output(narrow, node->out[j]);
}

int rb_narrow(struct rb_graph *graph, struct rb_why *why)
{
    struct narrow narrow = {.graph = graph, .why = why, .n_values = graph->n_values};
    int n = graph->n_nodes;
    int *before = RB_ARENA_NEW(&graph->arena, int, n + 2);

    narrow.demands = RB_ARENA_NEW(&graph->arena, struct demand, graph->n_values);
    narrow.tastes = RB_ARENA_NEW(&graph->arena, enum taste, n);
    find_demands(&narrow);
    before[0] = n;
    for (int i = 0; i < n && !narrow.err; i++) {
        narrow_node(&narrow, i);
        before[i + 1] = graph->n_nodes;
    }
    if (narrow.err)
        return narrow.err;
    before[n + 1] = graph->n_nodes;
    rb_graph_weave(graph, n, before);
    return 0;
}
