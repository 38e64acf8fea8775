/* SPDX-License-Identifier: Apache-2.0 */
/* Where gradients begin: the derivative of the summed loss. */
#include "graph/autodiff/autodiff.h"

static void targets_refuse(struct rb_diff *diff, struct rb_node *node)
{
    if (rb_diff_wants(diff, node, 1))
        rb_diff_refuse(diff, node, "its targets depend on a weight");
}

void rb_diff_cross_entropy(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *in[] = {node->in[0], node->in[1], NULL};
    struct rb_tensor_type row = node->in[1]->type;

    (void)dy;
    row.dtype = RB_F64;
    in[2] = rb_diff_output(diff, node, 3, &row);
    rb_diff_give(diff, node, 0,
                 rb_diff_make(diff, RB_OP_CROSS_ENTROPY_GRAD, NULL, 3, in, node->n_attributes,
                              node->attributes));
}

static void pair(struct rb_diff *diff, struct rb_node *node, enum rb_op op)
{
    targets_refuse(diff, node);
    if (rb_diff_wants(diff, node, 0))
        rb_diff_give(diff, node, 0, rb_diff_two(diff, op, node->in[0], node->in[1]));
}

void rb_diff_mse(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    (void)dy;
    pair(diff, node, RB_OP_MSE_GRAD);
}

void rb_diff_bce_logits(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    (void)dy;
    pair(diff, node, RB_OP_BCE_LOGITS_GRAD);
}

/* The loss is the mean that the graph made, times the samples. */
void rb_diff_graph_loss(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    struct rb_value *samples;

    (void)dy;
    samples = rb_graph_scalar(diff->graph, (float)rb_node_int(node, "samples", 1));
    rb_diff_give(diff, node, 0, rb_diff_expand(diff, samples, &node->in[0]->type));
}
