/* SPDX-License-Identifier: Apache-2.0 */
/* A model's filters on several devices: the forward graph of one of them.
 *
 * graph with its loss + which part has which filters > [split] > a part > autodiff, layout, lower
 *
 * A filter, or a neuron, is an element of axis 1 of the result of a product with a weight.  All
 * that follows a filter element by element is in the filter's part; so are its row of the weight,
 * and with it the row's gradient and state: weights never travel.  Where filters read others,
 * SPREAD brings the activations to them, each once to each device; its gradient, FOLD, brings back
 * the gradients of these activations.  Where layers are added, or combined element by element in
 * another way, filter f of each is in the same part (plan/partition/filters.h sees to it), so
 * combining them is local too.  A node that needs all filters at once (the loss, a softmax in front
 * of it) is in the last part, and so is a node that combines layers whose filters do not go
 * together: no product may read its result.
 *
 * Every part has the same SPREADs in the same order, those of its neighbours included, so that
 * messages arrive in the order in which they are waited for. */
#ifndef RB_GRAPH_SPLIT_H
#define RB_GRAPH_SPLIT_H

#include "graph/graph.h"

enum { RB_SPLIT_PARTS = 16 };

/* Filters first .. end - 1 are in `part`. */
struct rb_split_run {
    int64_t first, end;
    uint32_t part;
};

/* All filters of a product, in order; a run lies inside one group, or has whole groups. */
struct rb_split_layer {
    struct rb_split_run *runs;
    int n;
};

struct rb_split {
    uint32_t parts, mine;
    const struct rb_split_layer *layers; /* of the products, in the graph's order */
    int n_layers;
};

/* `whole`: with its loss, not differentiated yet.  It is taken: *ret_graph owns it, and a failure
 * frees it.  RB_EUNSUPPORTED names the first node that cannot be split, and its operator. */
int rb_graph_split(struct rb_graph *whole, const struct rb_split *how, struct rb_graph **ret_graph,
                   struct rb_why *why);

#endif
