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

/* What an output would be as own_loss, before there is a loss; and what it is where no label is
 * left out. */
enum rb_own_loss rb_own_loss_of(const struct rb_graph *graph, const struct rb_value *output);
enum rb_own_loss rb_own_loss_of_all(const struct rb_graph *graph, const struct rb_value *output);

/* Merge nodes that one kernel does better (MatMul + Add of a row); drop nodes that are not read. */
int rb_fuse(struct rb_graph *graph, struct rb_why *why);

/* After rb_fuse, where devices gain by it, attention becomes one node, which never makes the
 * scores.  GPUs gain at any size.  A core gains from 64 keys on where keys behind a query are
 * hidden, and from 512 on in any case: does any attention of this graph pay on a core? */
bool rb_attention_pays(const struct rb_graph *graph);

/* Where attention is, by places of nodes, ascending.  Graphs of other batch sizes have it in the
 * same places.  But in a graph of one sample more looks like attention than in one of several (keys
 * that all samples share, a mask of one key), so one graph must decide for all. */
struct rb_attentions {
    int n;
    int *place;
};
void rb_attention_find(const struct rb_graph *graph, struct rb_attentions *ret_attentions);
void rb_attentions_done(struct rb_attentions *attentions);

/* Fuse attention in these places, as far as there is any. */
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

/* Precision bf16: products take factors of bfloat16; a value that only products read is kept so.
 * Sums, norms, losses, weights and gradients of weights stay float32. */
int rb_narrow(struct rb_graph *graph, struct rb_why *why);

/* Where devices have it for free, a Relu behind a product is done by the product.  The bits stay,
 * and so do the ids of the nodes that stay. */
void rb_fuse_relu(struct rb_graph *graph);

/* Last of all, where devices gain by it: elementwise nodes that follow each other become one node.
 * The bits stay, and so do the ids of the nodes that stay. */
void rb_fuse_points(struct rb_graph *graph);

#endif
