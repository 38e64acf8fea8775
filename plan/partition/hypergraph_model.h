/* SPDX-License-Identifier: Apache-2.0 */
/* From layers of filters to a hypergraph.
 *
 * layers > [hypergraph_model] > hypergraph
 *
 * A vertex is a filter or a neuron with all that follows it element by element (norm, activation,
 * pool).  Filters of one layer that read the same are alike, so they may be taken together: the net
 * of a vertex of k filters costs what their k nets cost.
 *
 * Where layers are added, filter f of the one and filter f of the other are one vertex, with the
 * work and memory of both: so a sum is made where its summands are, and no part sends those.  Each
 * activation that is read stays a net of its own, be it a summand, a sum or both. */
#ifndef RB_PLAN_PARTITION_HYPERGRAPH_MODEL_H
#define RB_PLAN_PARTITION_HYPERGRAPH_MODEL_H

#include "plan/partition/hypergraph.h"

#include <stdbool.h>

enum { RB_HYPERGRAPH_INPUTS = 8 };

struct rb_hypergraph_layer {
    uint32_t filters, groups; /* groups: 0 counts as 1 */
    double work;              /* of a filter, a sample */
    double memory;            /* of a filter: parameters and what the optimizer keeps */
    double words;             /* that a filter passes on, a sample */
    uint32_t inputs[RB_HYPERGRAPH_INPUTS]; /* layers in front of it, concatenated */
    uint32_t n_inputs;                     /* 0: it reads the samples, which every part has */

    /* Layers in front of it with as many filters.  A layer with joins is no product; it is made of
     * theirs filter by filter: their sum, or another activation of the only one. */
    uint32_t joins[RB_HYPERGRAPH_INPUTS];
    uint32_t n_joins;
};

/* A convolution with k x k kernels, or a dense layer (k = 1, 1 x 1 pixels): forward, and backward
 * twice as much.  pooled: pixels that it passes on. */
struct rb_hypergraph_layer rb_hypergraph_convolution(uint32_t filters, uint32_t groups,
                                                     uint32_t channels, uint32_t kernel,
                                                     uint32_t pixels, uint32_t pooled);

bool rb_hypergraph_reads(const struct rb_hypergraph_layer *layer, uint32_t other);
bool rb_hypergraph_joins(const struct rb_hypergraph_layer *layer, uint32_t other);

/* By layer: the first of the layers that share its vertices filter by filter; mostly itself. */
void rb_hypergraph_roots(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t *ret_roots);

/* Filters first .. end - 1 of a layer, taken together, and the same filters of all layers whose
 * root it is. */
struct rb_hypergraph_bundle {
    uint32_t layer, first, end;
};

/* grain: vertices a layer at most, where its groups allow; 0: one vertex a filter.  ret_bundles
 * (may be NULL): by vertex, in the order of layers and filters; freed by the caller. */
void rb_hypergraph_of_layers(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t grain,
                             struct rb_hypergraph *ret_graph,
                             struct rb_hypergraph_bundle **ret_bundles);

/* Where filters of a layer cease to be alike, because they, or the filters they are joined with,
 * read other groups or are read by other groups: true in front of such a filter.  ret_borders has
 * room for all filters and one more. */
void rb_hypergraph_borders(const struct rb_hypergraph_layer *layers, uint32_t n, uint32_t layer,
                           bool *ret_borders);

/* The contiguous cut by layer into n parts whose largest has least work, as other systems cut;
 * layers that are joined stay together, with all layers between them.  ret_parts: by layer.
 * Returns its imbalance. */
double rb_hypergraph_by_layer(const struct rb_hypergraph_layer *layers, uint32_t count, uint32_t n,
                              uint32_t *ret_parts);

#endif
