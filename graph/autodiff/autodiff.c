/* SPDX-License-Identifier: Apache-2.0 */
/* The driver: walks the forward nodes backwards and asks each operator's rule. */
#include "graph/autodiff/autodiff.h"
#include "graph/train.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rb_diff_rule *const rules[RB_OP_COUNT] = {
#define X(op, rule) [RB_OP_##op] = rb_diff_##rule,
    RB_DIFF_RULES(X)
#undef X
};

/* One gradient of a value; a value has as many as it has uses on the way to the loss. */
struct rb_diff_use {
    struct rb_value *gradient;
    int node, slot;
    struct rb_diff_use *next;
};

void rb_diff_refuse(struct rb_diff *diff, const struct rb_node *node, const char *format, ...)
{
    char text[256];
    va_list args;

    if (diff->err)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    diff->err = rb_why_set(diff->why, RB_EUNSUPPORTED, "node '%s' (%s) cannot be trained: %s",
                           node->name ? node->name : "", rb_op_info(node->op)->name, text);
}

bool rb_diff_wants(const struct rb_diff *diff, const struct rb_node *node, int slot)
{
    const struct rb_value *value = slot < node->n_in ? node->in[slot] : NULL;

    return value && value->id < diff->n_forward && diff->wanted[value->id];
}

static void add_contribution(struct rb_diff *diff, struct rb_value *variable,
                             struct rb_value *value)
{
    struct rb_graph *graph = diff->graph;

    if (graph->n_contributions == diff->room) {
        int room = diff->room ? 2 * diff->room : 64;
        struct rb_contribution *more = RB_ARENA_NEW(&graph->arena, struct rb_contribution, room);

        if (graph->n_contributions)
            memcpy(more, graph->contributions, sizeof(*more) * (size_t)graph->n_contributions);
        graph->contributions = more;
        diff->room = room;
    }
    graph->contributions[graph->n_contributions++] = (struct rb_contribution){variable, value};
}

void rb_diff_give(struct rb_diff *diff, const struct rb_node *node, int slot,
                  struct rb_value *gradient)
{
    struct rb_value *value;
    struct rb_diff_use *use;

    if (diff->err || !rb_diff_wants(diff, node, slot))
        return;
    value = node->in[slot];
    if (!gradient || gradient->type.dtype != value->type.dtype ||
        !rb_tensor_same_shape(&gradient->type, &value->type)) {
        diff->err = rb_why_set(diff->why, RB_EINTERNAL,
                               "node '%s' (%s): the gradient of input %d has the wrong type",
                               node->name ? node->name : "", rb_op_info(node->op)->name, slot);
        return;
    }
    if (value->role == RB_VALUE_WEIGHT) {
        add_contribution(diff, value, gradient);
        return;
    }
    use = RB_ARENA_NEW(&diff->graph->arena, struct rb_diff_use, 1);
    *use = (struct rb_diff_use){gradient, node->id, slot, diff->uses[value->id]};
    diff->uses[value->id] = use;
}

/* A gradient node is named after the forward node it comes from. */
static const char *gradient_name(struct rb_diff *diff)
{
    const char *name = diff->node && diff->node->name ? diff->node->name : "";

    return rb_arena_format(&diff->graph->arena, "%s.grad", name);
}

struct rb_value *rb_diff_make(struct rb_diff *diff, enum rb_op op,
                              const struct rb_tensor_type *like, int n_in,
                              struct rb_value *const *in, int n_attributes,
                              const struct rb_graph_attribute *attributes)
{
    struct rb_node *made;
    int err;

    if (diff->err)
        return NULL;
    err = rb_graph_node(diff->graph, op, gradient_name(diff), n_in, in, n_attributes, attributes,
                        1u, like, &made, diff->why);
    if (err) {
        diff->err =
            rb_why_add(diff->why, err, "the gradient of node '%s' (%s)",
                       diff->node->name ? diff->node->name : "", rb_op_info(diff->node->op)->name);
        return NULL;
    }
    return made->out[0];
}

struct rb_value *rb_diff_one(struct rb_diff *diff, enum rb_op op, struct rb_value *x)
{
    return rb_diff_make(diff, op, NULL, 1, (struct rb_value *[]){x}, 0, NULL);
}

struct rb_value *rb_diff_two(struct rb_diff *diff, enum rb_op op, struct rb_value *a,
                             struct rb_value *b)
{
    return rb_diff_make(diff, op, NULL, 2, (struct rb_value *[]){a, b}, 0, NULL);
}

struct rb_value *rb_diff_number(struct rb_diff *diff, const struct rb_value *like, double x)
{
    struct rb_tensor_type type = {.dtype = RB_F64};

    if (diff->err || !like || like->type.dtype != RB_F64)
        return rb_graph_scalar(diff->graph, (float)x);
    return rb_graph_value(diff->graph, RB_VALUE_CONST, NULL, &type,
                          rb_arena_copy(&diff->graph->arena, &x, sizeof x));
}

struct rb_value *rb_diff_scale(struct rb_diff *diff, struct rb_value *x, double factor)
{
    if (diff->err || factor == 1.0)
        return x;
    return rb_diff_two(diff, RB_OP_MUL, x, rb_diff_number(diff, x, factor));
}

struct rb_value *rb_diff_reshape(struct rb_diff *diff, struct rb_value *x,
                                 const struct rb_tensor_type *type)
{
    if (diff->err || rb_tensor_same_shape(&x->type, type))
        return x;
    return rb_diff_make(diff, RB_OP_RESHAPE, type, 1, &x, 0, NULL);
}

struct rb_value *rb_diff_expand(struct rb_diff *diff, struct rb_value *x,
                                const struct rb_tensor_type *type)
{
    if (diff->err || rb_tensor_same_shape(&x->type, type))
        return x;
    return rb_diff_make(diff, RB_OP_EXPAND, type, 1, &x, 0, NULL);
}

struct rb_value *rb_diff_sum_to(struct rb_diff *diff, struct rb_value *x,
                                const struct rb_tensor_type *type)
{
    struct rb_graph_attribute attribute;
    int64_t axes[RB_MAX_RANK];
    int n = 0, lead;

    if (diff->err || rb_tensor_same_shape(&x->type, type))
        return x;
    lead = x->type.rank - type->rank;
    for (int i = 0; i < x->type.rank; i++)
        if (x->type.dim[i] != 1 && (i < lead || type->dim[i - lead] == 1))
            axes[n++] = i;
    if (n) {
        attribute = rb_attr_ints("axes", axes, n);
        x = rb_diff_make(diff, RB_OP_REDUCE_SUM, NULL, 1, &x, 1, &attribute);
    }
    return rb_diff_reshape(diff, x, type);
}

struct rb_value *rb_diff_output(struct rb_diff *diff, struct rb_node *node, int i,
                                const struct rb_tensor_type *type)
{
    struct rb_graph *graph = diff->graph;

    if (diff->err)
        return NULL;
    if (node->n_out <= i) {
        struct rb_value **out = RB_ARENA_NEW(&graph->arena, struct rb_value *, i + 1);

        memcpy(out, node->out, sizeof(*out) * (size_t)node->n_out);
        node->out = out;
        node->n_out = i + 1;
    }
    if (!node->out[i]) {
        node->out[i] = rb_graph_value(graph, RB_VALUE_TEMP, NULL, type, NULL);
        node->out[i]->maker = node;
        node->out[i]->output = i;
    }
    return node->out[i];
}

/* A gradient must reach each trained weight, and every float on the way from one to the loss,
 * except what is detached. */
static void mark_wanted(struct rb_diff *diff, int n_nodes)
{
    struct rb_graph *graph = diff->graph;

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];

        diff->wanted[i] =
            value->role == RB_VALUE_WEIGHT && !value->frozen && value->type.dtype == RB_F32;
    }
    for (int i = 0; i < n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];
        bool any = false;

        for (int j = 0; j < node->n_in; j++)
            any |= node->in[j] && diff->wanted[node->in[j]->id];
        any |= node->op == RB_OP_SPREAD; /* it brings what other parts' weights made */
        any &= node->op != RB_OP_DETACH;
        for (int j = 0; any && j < node->n_out; j++)
            if (node->out[j] && rb_dtype_is_real(node->out[j]->type.dtype))
                diff->wanted[node->out[j]->id] = true;
    }
}

/* The whole gradient of a value: a left fold in the order of the nodes that use it.  The walk is
 * backwards, so the first use is already in front of the list; slots of one node are put in
 * order. */
static struct rb_value *fold(struct rb_diff *diff, const struct rb_value *value)
{
    struct rb_diff_use *sorted = NULL;
    struct rb_value *sum;

    for (struct rb_diff_use *use = diff->uses[value->id], *next; use; use = next) {
        struct rb_diff_use **at = &sorted;

        next = use->next;
        while (*at &&
               ((*at)->node < use->node || ((*at)->node == use->node && (*at)->slot < use->slot)))
            at = &(*at)->next;
        use->next = *at;
        *at = use;
    }
    diff->uses[value->id] = sorted;
    if (!sorted)
        return NULL;
    sum = sorted->gradient;
    for (struct rb_diff_use *use = sorted->next; use; use = use->next)
        sum = rb_diff_two(diff, RB_OP_ADD, sum, use->gradient);
    return sum;
}

static void visit(struct rb_diff *diff, struct rb_node *node, const struct rb_node *loss)
{
    struct rb_value **dy = RB_ARENA_NEW(&diff->graph->arena, struct rb_value *, node->n_out + 4);
    bool wanted = node->op == RB_OP_SPREAD, reached = wanted || node == loss;

    diff->node = node;
    for (int i = 0; i < node->n_in; i++)
        wanted |= rb_diff_wants(diff, node, i);
    if (!wanted)
        return;
    for (int i = 0; i < node->n_out; i++) {
        if (node->out[i] && node->out[i]->id < diff->n_forward)
            dy[i] = fold(diff, node->out[i]);
        reached |= dy[i] != NULL;
    }
    if (!reached || diff->err)
        return;
    if (!rules[node->op])
        rb_diff_refuse(diff, node, "this operator has no gradient");
    else
        rules[node->op](diff, node, dy);
}

/* The microbatch's own statistics are contributions like gradients. */
static void add_statistics(struct rb_diff *diff)
{
    const struct rb_graph *graph = diff->graph;

    for (int i = 0; i < diff->n_forward; i++)
        if (graph->values[i]->statistic && graph->values[i]->update)
            add_contribution(diff, graph->values[i], graph->values[i]->update);
}

static int check_loss(const struct rb_graph *graph, struct rb_why *why)
{
    if ((!graph->loss || !graph->loss->maker) && !graph->whole)
        return rb_why_set(why, RB_EINTERNAL, "the graph has no loss to differentiate");
    if (graph->n_contributions)
        return rb_why_set(why, RB_EINTERNAL, "the graph has been differentiated before");
    return 0;
}

int rb_autodiff(struct rb_graph *graph, struct rb_why *why)
{
    struct rb_diff diff = {.graph = graph, .why = why, .n_forward = graph->n_values};
    int n_nodes = graph->n_nodes, err = check_loss(graph, why);
    struct rb_node *loss;

    if (err)
        return err;
    loss = graph->loss ? graph->loss->maker : NULL;
    diff.wanted = RB_ARENA_NEW(&graph->arena, bool, graph->n_values);
    diff.uses = RB_ARENA_NEW(&graph->arena, struct rb_diff_use *, graph->n_values);
    mark_wanted(&diff, n_nodes);
    add_statistics(&diff);
    for (int i = n_nodes - 1; i >= 0 && !diff.err; i--)
        visit(&diff, graph->nodes[i], loss);
    if (diff.err || graph->whole)
        return diff.err;
    for (int i = 0; i < graph->n_contributions; i++)
        if (graph->contributions[i].variable->role == RB_VALUE_WEIGHT)
            return 0;
    if (graph->other_floats)
        return rb_why_set(why, RB_EINVAL,
                          "there is nothing to train: only float32 weights are, and %d are half "
                          "floats or doubles; model.float() before the export",
                          graph->other_floats);
    return rb_why_set(why, RB_EINVAL,
                      "there is nothing to train: the loss depends on no weight "
                      "that is not frozen");
}
