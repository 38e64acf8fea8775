/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of operators that move or sum elements: views, movement, reductions, softmax. */
#include "graph/autodiff/autodiff.h"

#include <string.h>

/* The gradient node takes over the forward node's attributes. */
static struct rb_value *same(struct rb_diff *diff, enum rb_op op, const struct rb_node *node,
                             const struct rb_tensor_type *like, int n, struct rb_value *const *in)
{
    return rb_diff_make(diff, op, like, n, in, node->n_attributes, node->attributes);
}

void rb_diff_reshape_rule(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_reshape(diff, dy[0], &node->in[0]->type));
}

void rb_diff_transpose(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    const struct rb_graph_attribute *perm = rb_node_attribute(node, "perm");
    int64_t inverse[RB_MAX_RANK] = {0};
    struct rb_graph_attribute attribute;

    for (int i = 0; i < perm->n_ints; i++)
        inverse[perm->ints[i]] = i;
    attribute = rb_attr_ints("perm", inverse, perm->n_ints);
    rb_diff_give(diff, node, 0, rb_diff_make(diff, RB_OP_TRANSPOSE, NULL, 1, dy, 1, &attribute));
}

void rb_diff_expand_rule(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, rb_diff_sum_to(diff, dy[0], &node->in[0]->type));
}

/* Slice `part` out of dy, `start` elements into the axis. */
static struct rb_value *cut(struct rb_diff *diff, struct rb_value *dy, int64_t axis, int64_t start,
                            const struct rb_tensor_type *part)
{
    int64_t starts[RB_MAX_RANK] = {0}, steps[RB_MAX_RANK];
    struct rb_graph_attribute attributes[2];

    for (int i = 0; i < RB_MAX_RANK; i++)
        steps[i] = 1;
    starts[axis] = start;
    attributes[0] = rb_attr_ints("starts", starts, part->rank);
    attributes[1] = rb_attr_ints("steps", steps, part->rank);
    return rb_diff_make(diff, RB_OP_SLICE, part, 1, &dy, 2, attributes);
}

void rb_diff_concat(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    int64_t axis = rb_node_int(node, "axis", 0), start = 0;

    for (int i = 0; i < node->n_in; i++) {
        const struct rb_tensor_type *part = &node->in[i]->type;

        if (rb_diff_wants(diff, node, i))
            rb_diff_give(diff, node, i, cut(diff, dy[0], axis, start, part));
        start += part->dim[axis];
    }
}

void rb_diff_split(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_graph *graph = diff->graph;
    struct rb_value **in = RB_ARENA_NEW(&graph->arena, struct rb_value *, node->n_out);
    int64_t axis = rb_node_int(node, "axis", 0);
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &axis, 1);

    for (int i = 0; i < node->n_out; i++) {
        if (dy[i]) {
            in[i] = dy[i];
        } else if (node->out[i]) { /* a piece without a gradient: zeros in its place */
            in[i] = rb_diff_expand(diff, rb_graph_scalar(graph, 0.0f), &node->out[i]->type);
        } else {
            rb_diff_refuse(diff, node, "one of its outputs is absent");
            return;
        }
    }
    rb_diff_give(diff, node, 0,
                 rb_diff_make(diff, RB_OP_CONCAT, NULL, node->n_out, in, 1, &attribute));
}

void rb_diff_slice(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, same(diff, RB_OP_SLICE_GRAD, node, &node->in[0]->type, 1, dy));
}

void rb_diff_trilu(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, same(diff, RB_OP_TRILU, node, NULL, 1, dy));
}

void rb_diff_gather(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *in[] = {dy[0], node->in[1]};

    rb_diff_give(diff, node, 0, same(diff, RB_OP_GATHER_GRAD, node, &node->in[0]->type, 2, in));
}

/* Broadcast dy back over the axes that were summed; they come back as 1 first. */
static struct rb_value *spread(struct rb_diff *diff, const struct rb_node *node,
                               struct rb_value *dy)
{
    const struct rb_graph_attribute *axes = rb_node_attribute(node, "axes");
    const struct rb_tensor_type *type = &node->in[0]->type;
    struct rb_tensor_type kept = *type;

    for (int i = 0; axes && i < axes->n_ints; i++)
        kept.dim[axes->ints[i]] = 1;
    return rb_diff_expand(diff, rb_diff_reshape(diff, dy, &kept), type);
}

void rb_diff_reduce_sum(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    rb_diff_give(diff, node, 0, spread(diff, node, dy[0]));
}

void rb_diff_reduce_mean(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    double ratio = (double)rb_tensor_elements(&node->out[0]->type) /
                   (double)rb_tensor_elements(&node->in[0]->type);

    rb_diff_give(diff, node, 0, spread(diff, node, rb_diff_scale(diff, dy[0], ratio)));
}

void rb_diff_softmax(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *in[] = {dy[0], node->out[0]};

    rb_diff_give(diff, node, 0, same(diff, RB_OP_SOFTMAX_GRAD, node, NULL, 2, in));
}

void rb_diff_log_softmax(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *in[] = {dy[0], node->out[0]};

    rb_diff_give(diff, node, 0, same(diff, RB_OP_LOG_SOFTMAX_GRAD, node, NULL, 2, in));
}
