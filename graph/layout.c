/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts: which activations are kept in blocks of channels (proto/blocked.h).
 *
 * Nodes are visited in order.  A convolution takes and makes blocks wherever the channels allow; a
 * node that can work on blocks does so where an input already is in blocks; all other nodes get
 * plain tensors.  A value is turned around at most once each way, right before the first node that
 * needs it.  Channels alone decide, never the batch: programs of one job are laid out alike. */
#include "graph/train.h"
#include "proto/blocked.h"

#include <string.h>

/* The forms in which a value is at hand, by its id before this pass. */
struct forms {
    struct rb_value *plain, *blocked; /* NULL: not made yet */
};

struct layout {
    struct rb_graph *graph;
    struct rb_why *why;
    int err; /* the first error */
    struct forms *forms;
    int n_values; /* that were there before */
};

static struct forms *forms_of(const struct layout *layout, const struct rb_value *value)
{
    return &layout->forms[value->id];
}

static bool is_blocked(const struct layout *layout, const struct rb_value *value)
{
    return value && value->id < layout->n_values && layout->forms[value->id].blocked;
}

/* ---- Turning around ------------------------------------------------------------------------- */

static struct rb_value *make(struct layout *layout, enum rb_op op, struct rb_value *x,
                             const struct rb_tensor_type *type,
                             const struct rb_graph_attribute *attribute)
{
    struct rb_node *node = NULL;

    if (!layout->err)
        layout->err = rb_graph_node(layout->graph, op, x->name, 1, &x, attribute ? 1 : 0, attribute,
                                    1, type, &node, layout->why);
    return layout->err ? x : node->out[0];
}

static struct rb_value *reshape(struct layout *layout, struct rb_value *x,
                                const struct rb_tensor_type *type)
{
    return make(layout, RB_OP_RESHAPE, x, type, NULL);
}

/* [N, C, ...] as [N, C/16, 16, ...], and the last axes in the blocked order. */
static struct rb_value *make_blocked(struct layout *layout, struct rb_value *x)
{
    struct rb_tensor_type split = x->type;
    int64_t perm[RB_MAX_RANK];
    struct rb_graph_attribute attribute;

    split.rank++;
    for (int i = split.rank - 1; i > 2; i--)
        split.dim[i] = x->type.dim[i - 1];
    split.dim[1] /= RB_BLOCK;
    split.dim[2] = RB_BLOCK;
    for (int i = 0; i < split.rank; i++)
        perm[i] = i < 2 ? i : i + 1 < split.rank ? i + 1 : 2;
    attribute = rb_attr_ints("perm", perm, split.rank);
    return make(layout, RB_OP_TRANSPOSE, reshape(layout, x, &split), NULL, &attribute);
}

static struct rb_value *make_plain(struct layout *layout, struct rb_value *x)
{
    int rank = x->type.rank;
    struct rb_tensor_type plain = rb_blocked_plain(&x->type, rank - 3);
    int64_t perm[RB_MAX_RANK];
    struct rb_graph_attribute attribute;

    for (int i = 0; i < rank; i++)
        perm[i] = i < 2 ? i : i == 2 ? rank - 1 : i - 1;
    attribute = rb_attr_ints("perm", perm, rank);
    return reshape(layout, make(layout, RB_OP_TRANSPOSE, x, NULL, &attribute), &plain);
}

static struct rb_value *plain_of(struct layout *layout, struct rb_value *value)
{
    struct forms *forms = value ? forms_of(layout, value) : NULL;

    if (forms && !forms->plain)
        forms->plain = make_plain(layout, forms->blocked);
    return forms ? forms->plain : NULL;
}

static struct rb_value *blocked_of(struct layout *layout, struct rb_value *value)
{
    struct forms *forms = forms_of(layout, value);

    if (!forms->blocked)
        forms->blocked = make_blocked(layout, forms->plain);
    return forms->blocked;
}

/* Output `i` of the node comes in blocks from now on. */
static void becomes_blocked(struct layout *layout, struct rb_node *node, int i)
{
    struct rb_value *value = i < node->n_out ? node->out[i] : NULL;

    if (!value)
        return;
    value->type = rb_blocked_of(&value->type);
    *forms_of(layout, value) = (struct forms){.blocked = value};
}

/* ---- Nodes: true where the node has been given what it wants --------------------------------- */

/* The type without blocks of a value that was there before. */
static struct rb_tensor_type plain_type(const struct layout *layout, const struct rb_value *value)
{
    return is_blocked(layout, value) && !layout->forms[value->id].plain
               ? rb_blocked_plain(&value->type, value->type.rank - 3)
               : layout->forms[value->id].plain->type;
}

static bool may_block(const struct layout *layout, const struct rb_value *value)
{
    struct rb_tensor_type type = plain_type(layout, value);

    return rb_blocked_may(&type) && type.rank <= 5;
}

static void take(struct layout *layout, struct rb_node *node, int i)
{
    node->in[i] = may_block(layout, node->in[i]) ? blocked_of(layout, node->in[i])
                                                 : plain_of(layout, node->in[i]);
}

static bool lay_conv(struct layout *layout, struct rb_node *node)
{
    bool forward = node->op == RB_OP_CONV, grad_w = node->op == RB_OP_CONV_GRAD_W;
    struct rb_value *x = grad_w ? node->in[1] : node->in[0];
    struct rb_value *y = grad_w ? node->in[0] : node->out[0];

    if (rb_node_int(node, "group", 1) != 1 || (!may_block(layout, x) && !may_block(layout, y)))
        return false;
    take(layout, node, 0);
    if (grad_w)
        take(layout, node, 1);
    else
        node->in[1] = plain_of(layout, node->in[1]);
    if (forward && node->n_in > 2)
        node->in[2] = plain_of(layout, node->in[2]);
    if (!grad_w && may_block(layout, node->out[0]))
        becomes_blocked(layout, node, 0);
    return true;
}

/* Pools and their gradients: all their activations get the same form. */
static bool lay_pool(struct layout *layout, struct rb_node *node)
{
    bool any = false;

    for (int i = 0; i < node->n_in; i++)
        any = any || is_blocked(layout, node->in[i]);
    if (!any)
        return false;
    for (int i = 0; i < node->n_in; i++)
        node->in[i] = blocked_of(layout, node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        becomes_blocked(layout, node, i);
    return true;
}

enum operand { WHOLE, CHANNELS, NUMBER, OTHER };

/* How a broadcast operand relates to an output of this type; `ret_samples`: its first axis. */
static enum operand operand_of(const struct layout *layout, const struct rb_value *value,
                               const struct rb_tensor_type *y, int64_t *ret_samples)
{
    struct rb_tensor_type type = plain_type(layout, value);
    int lead = y->rank - type.rank;

    if (rb_tensor_same_shape(&type, y))
        return WHOLE;
    if (rb_tensor_elements(&type) == 1)
        return NUMBER;
    *ret_samples = lead == 0 ? type.dim[0] : 1;
    if (lead < 0 || lead > 1 || type.dim[1 - lead] != y->dim[1] ||
        rb_tensor_elements(&type) != *ret_samples * y->dim[1])
        return OTHER;
    return CHANNELS;
}

static struct rb_value *take_operand(struct layout *layout, struct rb_value *value,
                                     const struct rb_tensor_type *y)
{
    struct rb_tensor_type type = {.dtype = value->type.dtype};
    int64_t samples = 1;

    switch (operand_of(layout, value, y, &samples)) {
    case WHOLE:
        return blocked_of(layout, value);
    case CHANNELS:
        type = (struct rb_tensor_type){
            .dtype = type.dtype, .rank = y->rank, .dim = {samples, y->dim[1]}};
        for (int i = 2; i < y->rank; i++)
            type.dim[i] = 1;
        type = rb_blocked_of(&type);
        break;
    default:
        break;
    }
    return reshape(layout, plain_of(layout, value), &type);
}

static bool lay_point(struct layout *layout, struct rb_node *node)
{
    struct rb_tensor_type y = node->out[0]->type;
    int64_t samples;
    bool any = false;

    if (!may_block(layout, node->out[0]))
        return false;
    for (int i = 0; i < node->n_in; i++) {
        if (!node->in[i] || operand_of(layout, node->in[i], &y, &samples) == OTHER)
            return false;
        any = any || is_blocked(layout, node->in[i]);
    }
    if (!any)
        return false;
    for (int i = 0; i < node->n_in; i++)
        node->in[i] = take_operand(layout, node->in[i], &y);
    becomes_blocked(layout, node, 0);
    return true;
}

/* A sum over all places leaves channels in their order, so its result has no blocks to undo. */
static bool lay_sum(struct layout *layout, struct rb_node *node)
{
    const struct rb_graph_attribute *axes = rb_node_attribute(node, "axes");
    struct rb_tensor_type y = node->out[0]->type, sums = {.dtype = y.dtype};
    struct rb_value *made;
    unsigned reduced = 0;
    int rank;

    if (!axes || !is_blocked(layout, node->in[0]))
        return false;
    rank = forms_of(layout, node->in[0])->blocked->type.rank;
    for (int i = 0; i < axes->n_ints; i++)
        reduced |= 1u << axes->ints[i];
    if ((reduced | 1u) != ((1u << (rank - 1)) - 1 - 2u))
        return false;
    node->in[0] = forms_of(layout, node->in[0])->blocked;
    for (int i = 0; i < rank; i++)
        if (!(reduced >> i & 1u))
            sums.dim[sums.rank++] = node->in[0]->type.dim[i];
    made = node->out[0];
    made->type = sums;
    forms_of(layout, made)->plain = NULL; /* a view of it, made behind the node */
    return true;
}

static bool lay_norm(struct layout *layout, struct rb_node *node)
{
    int activations = node->op == RB_OP_BATCH_NORM_GRAD ? 2 : 1;
    bool any = false;

    for (int i = 0; i < activations; i++)
        any = any || is_blocked(layout, node->in[i]);
    if (!any)
        return false;
    for (int i = 0; i < node->n_in; i++)
        node->in[i] =
            i < activations ? blocked_of(layout, node->in[i]) : plain_of(layout, node->in[i]);
    if (node->n_out > 0)
        becomes_blocked(layout, node, 0);
    return true;
}

static bool lay_node(struct layout *layout, struct rb_node *node)
{
    switch (node->op) {
    case RB_OP_CONV:
    case RB_OP_CONV_GRAD_X:
    case RB_OP_CONV_GRAD_W:
        return lay_conv(layout, node);
    case RB_OP_MAX_POOL:
    case RB_OP_MAX_POOL_GRAD:
    case RB_OP_AVERAGE_POOL:
    case RB_OP_AVERAGE_POOL_GRAD:
        return lay_pool(layout, node);
    case RB_OP_BATCH_NORM:
    case RB_OP_BATCH_NORM_EVAL:
    case RB_OP_BATCH_NORM_GRAD:
        return lay_norm(layout, node);
    case RB_OP_REDUCE_SUM:
    case RB_OP_REDUCE_MEAN:
        return lay_sum(layout, node);
    default:
        return rb_op_info(node->op)->kind == RB_KIND_POINT && lay_point(layout, node);
    }
}

/* ---- The whole ------------------------------------------------------------------------------ */

static void lay(struct layout *layout, struct rb_node *node)
{
    if (lay_node(layout, node))
        return;
    for (int i = 0; i < node->n_in; i++)
        node->in[i] = plain_of(layout, node->in[i]);
}

/* Handles outputs whose type is no longer the one that readers expect. */
static void finish(struct layout *layout, struct rb_node *node, const struct rb_tensor_type *type)
{
    struct forms *forms = node->n_out > 0 && node->out[0] ? forms_of(layout, node->out[0]) : NULL;

    if (forms && !forms->plain && !forms->blocked)
        forms->plain = reshape(layout, node->out[0], type);
}

/* Values that are read from outside the graph are plain. */
static void lay_ends(struct layout *layout)
{
    struct rb_graph *graph = layout->graph;

    graph->loss = plain_of(layout, graph->loss);
    graph->count = plain_of(layout, graph->count);
    graph->correct = plain_of(layout, graph->correct);
    for (int i = 0; i < graph->n_outputs; i++)
        graph->outputs[i] = plain_of(layout, graph->outputs[i]);
    for (int i = 0; i < graph->n_contributions; i++)
        graph->contributions[i].value = plain_of(layout, graph->contributions[i].value);
    for (int i = 0; i < layout->n_values; i++)
        graph->values[i]->update = plain_of(layout, graph->values[i]->update);
}

int rb_layout(struct rb_graph *graph, struct rb_why *why)
{
    struct layout layout = {.graph = graph, .why = why, .n_values = graph->n_values};
    int n = graph->n_nodes;
    int *before = RB_ARENA_NEW(&graph->arena, int, n + 2);

    layout.forms = RB_ARENA_NEW(&graph->arena, struct forms, graph->n_values);
    for (int i = 0; i < graph->n_values; i++)
        layout.forms[i].plain = graph->values[i];
    before[0] = n;
    for (int i = 0; i < n && !layout.err; i++) {
        struct rb_node *node = graph->nodes[i];
        struct rb_tensor_type type = {0};

        if (node->n_out > 0 && node->out[0])
            type = node->out[0]->type;
        lay(&layout, node);
        before[i + 1] = graph->n_nodes;
        finish(&layout, node, &type);
    }
    lay_ends(&layout);
    if (layout.err)
        return layout.err;
    before[n + 1] = graph->n_nodes;
    rb_graph_weave(graph, n, before);
    return 0;
}
