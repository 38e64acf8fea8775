/* SPDX-License-Identifier: Apache-2.0 */
/* From a model to its training graph: loss, fusion, gradient, layouts, precision.
 *
 * import > [loss] > [fuse] > [autodiff] > [layout] > [narrow] > [fuse_relu] > [fuse_points] > plan
 *
 * These run in this order and each decides bits, so they run once, when a job is submitted. */
#ifndef RB_GRAPH_TRAIN_H
#define RB_GRAPH_TRAIN_H

#include "graph/graph.h"

struct rb_loss_options {
    const char *type; /* cross_entropy | mse | bce_with_logits | graph */
    int64_t ignore_index;
    double label_smoothing;
    struct rb_tensor_type targets; /* one sample's (no batch axis); dtype RB_NONE: none */
    bool sequences;                /* of tokens, whose classes are the output's last axis */
};

/* Append the loss to the model's first output: sums over samples and the count of valid targets.
 * `graph`: the model's own output is the loss; where its tail is a mean that is recognised it is
 * rewritten to sum and count; own_loss says what it is. */
int rb_loss_attach(struct rb_graph *graph, const struct rb_loss_options *options,
                   struct rb_why *why);

/* The same of an output before there is a loss; and what it is where no label is left out. */
enum rb_own_loss rb_own_loss_of(const struct rb_graph *graph, const struct rb_value *output);
enum rb_own_loss rb_own_loss_of_all(const struct rb_graph *graph, const struct rb_value *output);

/* Merge nodes that one kernel does better (MatMul + Add of a row); drop what nobody reads. */
int rb_fuse(struct rb_graph *graph, struct rb_why *why);

/* Behind that, where devices gain by it: attention becomes one node, which never makes the scores.
 * GPUs do of any size.  A core does where keys behind a query are hidden and there are 64 of them
 * or more, or there are 512 or more: does any attention of this graph pay so? */
bool rb_attention_pays(const struct rb_graph *graph);

/* Where it is, by places of nodes, ascending.  Graphs of other batch sizes have it in the same
 * places; but of one sample alone more looks like it than of several (keys that all have in common,
 * a mask of one key), so that one of them is to be asked for all. */
struct rb_attentions {
    int n;
    int *place;
};
void rb_attention_find(const struct rb_graph *graph, struct rb_attentions *ret_attentions);
void rb_attentions_done(struct rb_attentions *attentions);

/* In these places, as far as there is attention. */
void rb_fuse_attention(struct rb_graph *graph, const struct rb_attentions *attentions);

/* Append the gradient of the loss with respect to every weight that is not frozen; fill
 * graph->contributions (statistics of BatchNormalization included).  Gradients that meet at an
 * activation are added as a left fold in the order of the forward nodes that use it.  The message
 * names the first node that cannot be differentiated and why. */
int rb_autodiff(struct rb_graph *graph, struct rb_why *why);

/* Keep the activations of convolutions, and of what lies between them, in blocks of channels
 * (proto/blocked.h), turned around only where they come and go.  From here on a node's id is a
 * name, not its place. */
int rb_layout(struct rb_graph *graph, struct rb_why *why);

/* Precision bf16: products take factors of bfloat16; what nothing else reads is kept so.  Sums,
 * norms, losses, weights and gradients of weights stay float32. */
int rb_narrow(struct rb_graph *graph, struct rb_why *why);

/* Where devices have it for nothing: products cut off what is below 0.  The bits stay, and so do
 * the ids of the nodes that stay. */
void rb_fuse_relu(struct rb_graph *graph);

/* Last of all, where devices gain by it: elementwise nodes that follow each other become one.  The
 * bits stay, and so do the ids of the nodes that stay. */
void rb_fuse_points(struct rb_graph *graph);

#endif
