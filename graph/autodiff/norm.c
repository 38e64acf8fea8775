/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of norms, attention, pools and dropout: operators that have a grad operator of their
 * own. */
#include "graph/autodiff/autodiff.h"

/* A grad operator that makes the gradients of all three inputs; only the wanted ones are
 * computed. */
static void grads(struct rb_diff *diff, enum rb_op op, struct rb_node *node, int n_in,
                  struct rb_value *const *in)
{
    unsigned want = 0;
    struct rb_node *made;
    int err;

    for (int i = 0; i < 3; i++)
        if (rb_diff_wants(diff, node, i))
            want |= 1u << i;
    if (diff->err || !want)
        return;
    err =
        rb_graph_node(diff->graph, op, rb_arena_format(&diff->graph->arena, "%s.grad", node->name),
                      n_in, in, node->n_attributes, node->attributes, want, NULL, &made, diff->why);
    if (err) {
        diff->err = rb_why_add(diff->why, err, "the gradient of node '%s' (%s)", node->name,
                               rb_op_info(node->op)->name);
        return;
    }
    for (int i = 0; i < made->n_out; i++)
        if (made->out[i])
            rb_diff_give(diff, node, i, made->out[i]);
}

static bool only_first(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    for (int i = 1; i < node->n_out; i++)
        if (dy[i]) {
            rb_diff_refuse(diff, node, "its output %d reaches the loss, and has no gradient", i);
            return false;
        }
    return dy[0] != NULL;
}

void rb_diff_layer_norm(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_tensor_type row = node->in[0]->type;
    struct rb_value *mean, *inverse;

    if (!only_first(diff, node, dy))
        return;
    row.dtype = RB_F32;
    for (int64_t i = rb_node_int(node, "axis", 0); i < row.rank; i++)
        row.dim[i] = 1;
    mean = rb_diff_output(diff, node, 1, &row);
    inverse = rb_diff_output(diff, node, 2, &row);
    grads(diff, RB_OP_LAYER_NORM_GRAD, node, 5,
          (struct rb_value *[]){dy[0], node->in[0], node->in[1], mean, inverse});
}

void rb_diff_attention(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_graph_attribute *attributes =
        RB_ARENA_NEW(&diff->graph->arena, struct rb_graph_attribute, node->n_attributes + 1);
    struct rb_node keyed = *node;
    struct rb_tensor_type row = node->in[0]->type;
    int64_t id = node->id;
    struct rb_value *l;

    if (!only_first(diff, node, dy))
        return;
    row.dim[row.rank - 1] = 1;
    l = rb_diff_output(diff, node, 1, &row);
    for (int i = 0; i < node->n_attributes; i++)
        attributes[i] = node->attributes[i];
    attributes[keyed.n_attributes++] = rb_attr_ints("key", &id, 1);
    keyed.attributes = attributes;
    grads(diff, RB_OP_ATTENTION_GRAD, &keyed, 6,
          (struct rb_value *[]){dy[0], node->in[0], node->in[1], node->in[2], node->out[0], l});
}

void rb_diff_batch_norm(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    const struct rb_tensor_type *channel = &node->in[1]->type;
    struct rb_value *mean, *inverse;

    if (!only_first(diff, node, dy))
        return;
    mean = rb_diff_output(diff, node, 1, channel);
    inverse = rb_diff_output(diff, node, 3, channel);
    grads(diff, RB_OP_BATCH_NORM_GRAD, node, 5,
          (struct rb_value *[]){dy[0], node->in[0], node->in[1], mean, inverse});
}

void rb_diff_max_pool(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_tensor_type places = node->out[0]->type;
    struct rb_value *in[2] = {dy[0]};

    places.dtype = RB_I32;
    in[1] = rb_diff_output(diff, node, 1, &places);
    rb_diff_give(diff, node, 0,
                 rb_diff_make(diff, RB_OP_MAX_POOL_GRAD, &node->in[0]->type, 2, in,
                              node->n_attributes, node->attributes));
}

void rb_diff_average_pool(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0,
                 rb_diff_make(diff, RB_OP_AVERAGE_POOL_GRAD, &node->in[0]->type, 1, dy,
                              node->n_attributes, node->attributes));
}

/* The mask is drawn again, under the id of the forward node: lowering gives an instruction the id
 * of its node, and forward nodes have the same ids in the graphs of every batch size. */
void rb_diff_dropout(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    int64_t key = node->id;
    float ratio = rb_node_float(node, "ratio", 0);
    struct rb_graph_attribute attributes[] = {rb_attr_float("ratio", &ratio),
                                              rb_attr_ints("key", &key, 1)};

    rb_diff_give(diff, node, 0, rb_diff_make(diff, RB_OP_DROPOUT_GRAD, NULL, 1, dy, 2, attributes));
}

/* One number a channel, shaped to broadcast over x. */
static struct rb_value *beside(struct rb_diff *diff, struct rb_value *v, int rank)
{
    struct rb_tensor_type type = {.dtype = RB_F32, .rank = rank - 1};

    if (diff->err)
        return NULL;
    type.dim[0] = v->type.dim[0];
    for (int i = 1; i < type.rank; i++)
        type.dim[i] = 1;
    return rb_diff_reshape(diff, v, &type);
}

static struct rb_value *over_channels(struct rb_diff *diff, struct rb_value *x,
                                      const struct rb_tensor_type *channel)
{
    struct rb_graph_attribute attribute;
    int64_t axes[RB_MAX_RANK];
    int n = 0;

    if (diff->err)
        return NULL;
    for (int i = 0; i < x->type.rank; i++)
        if (i != 1)
            axes[n++] = i;
    attribute = rb_attr_ints("axes", axes, n);
    return rb_diff_make(diff, RB_OP_REDUCE_SUM, channel, 1, &x, 1, &attribute);
}

/* y = (x - mean) inverse scale + bias, inverse = (variance + epsilon)^(-1/2): by channel, the
 * gradients of statistics that are computed from weights. */
static void give_statistics(struct rb_diff *diff, struct rb_node *node, struct rb_value *inverse,
                            struct rb_value *dbias, struct rb_value *dscale)
{
    struct rb_value *part;

    if (rb_diff_wants(diff, node, 3)) {
        part = rb_diff_two(diff, RB_OP_MUL, node->in[1], inverse);
        part = rb_diff_two(diff, RB_OP_MUL, dbias, part);
        rb_diff_give(diff, node, 3, rb_diff_one(diff, RB_OP_NEG, part));
    }
    if (rb_diff_wants(diff, node, 4)) {
        part = rb_diff_two(diff, RB_OP_MUL, inverse, inverse);
        part = rb_diff_two(diff, RB_OP_MUL, part, rb_diff_number(diff, NULL, -0.5));
        part = rb_diff_two(diff, RB_OP_MUL, part, node->in[1]);
        rb_diff_give(diff, node, 4, rb_diff_two(diff, RB_OP_MUL, dscale, part));
    }
}

/* With given statistics a batch norm is one scale and one shift a channel. */
void rb_diff_batch_norm_eval(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    double epsilon = (double)rb_node_float(node, "epsilon", 1e-5F);
    struct rb_value *x = node->in[0], *inverse, *part, *dscale = NULL, *dbias = NULL;
    const struct rb_tensor_type *channel = &node->in[1]->type;
    int rank = x->type.rank;

    inverse = rb_diff_two(diff, RB_OP_ADD, node->in[4], rb_diff_number(diff, NULL, epsilon));
    inverse = rb_diff_one(diff, RB_OP_RECIPROCAL, rb_diff_one(diff, RB_OP_SQRT, inverse));
    if (rb_diff_wants(diff, node, 0)) {
        part = rb_diff_two(diff, RB_OP_MUL, node->in[1], inverse);
        rb_diff_give(diff, node, 0, rb_diff_two(diff, RB_OP_MUL, dy[0], beside(diff, part, rank)));
    }
    if (rb_diff_wants(diff, node, 1) || rb_diff_wants(diff, node, 4)) {
        part = rb_diff_two(diff, RB_OP_SUB, x, beside(diff, node->in[3], rank));
        part = rb_diff_two(diff, RB_OP_MUL, part, beside(diff, inverse, rank));
        dscale = over_channels(diff, rb_diff_two(diff, RB_OP_MUL, dy[0], part), channel);
    }
    if (rb_diff_wants(diff, node, 1))
        rb_diff_give(diff, node, 1, dscale);
    if (rb_diff_wants(diff, node, 2) || rb_diff_wants(diff, node, 3))
        dbias = over_channels(diff, dy[0], channel);
    if (rb_diff_wants(diff, node, 2))
        rb_diff_give(diff, node, 2, dbias);
    give_statistics(diff, node, inverse, dbias, dscale);
}
