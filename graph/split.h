/* SPDX-License-Identifier: Apache-2.0 */
/* A model's filters on several devices: the forward graph of one of them.
 *
 * graph with its loss + who has which filters > [split] > a part of it > autodiff, layout, lower
 *
 * A filter, or a neuron, is an element of axis 1 of what a product with a weight makes.  All that
 * follows it element by element is where it is; so are its row of the weight, and with them its
 * gradient and its state: weights never travel.  Where filters read others, SPREAD brings the
 * activations to them, each once to each device; its gradient, FOLD, brings back what they make of
 * theirs.  Layers that are added to each other, or put together element by element in another way,
 * have each filter where its others are (plan/partition/filters.h sees to it): so that is local
 * too.  What needs all filters at once (the loss, a softmax in front of it) is in the last part,
 * and so are layers put together that do not go together: no product may read that.
 *
 * Every part has its SPREADs in the same order, those of its neighbours too, so that messages meet
 * in the order in which they are waited for. */
#ifndef RB_GRAPH_SPLIT_H
#define RB_GRAPH_SPLIT_H

#include "graph/graph.h"

enum { RB_SPLIT_PARTS = 16 };

/* Filters first .. end - 1 are in `part`. */
struct rb_split_run {
    int64_t first, end;
    uint32_t part;
};

/* All filters of a product, in their order; a run lies in one group, or has whole groups. */
struct rb_split_layer {
    struct rb_split_run *runs;
    int n;
};

struct rb_split {
    uint32_t parts, mine;
    const struct rb_split_layer *layers; /* of the products, in the graph's order */
    int n_layers;
};

/* `whole`: with its loss, not differentiated yet; taken, also where it fails: *ret_graph owns it.
 * RB_EUNSUPPORTED names the first node that cannot be split, and its operator. */
int rb_graph_split(struct rb_graph *whole, const struct rb_split *how, struct rb_graph **ret_graph,
                   struct rb_why *why);

#endif
