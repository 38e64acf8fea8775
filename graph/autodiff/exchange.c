/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of what goes between devices: every part with a share in a net takes part on the way
 * back, whether or not it has filters of its own there. */
#include "graph/autodiff/autodiff.h"

void rb_diff_spread(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy)
{
    bool reads = node->n_out > 0 && node->out[0], gives = node->n_in > 0 && node->in[0];
    struct rb_value *in[1] = {reads ? dy[0] : NULL};
    struct rb_node *made;

    if (reads && !in[0]) {
        rb_diff_refuse(diff, node, "what other devices send does not reach the loss");
        return;
    }
    if (diff->err)
        return;
    diff->err = rb_graph_node(diff->graph, RB_OP_FOLD,
                              rb_arena_format(&diff->graph->arena, "%s.grad", node->name), 1, in,
                              node->n_attributes, node->attributes, gives,
                              gives ? &node->in[0]->type : NULL, &made, diff->why);
    if (!diff->err && gives)
        rb_diff_give(diff, node, 0, made->out[0]);
}
