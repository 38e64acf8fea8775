/* SPDX-License-Identifier: Apache-2.0 */
/* Hypergraphs and their partition: which part owns which filters and neurons.
 *
 * layers of filters (hypergraph_model.h) > [hypergraph] > a part for each vertex, and its volume
 *
 * A vertex is work; a net is an activation: its pins are the vertex that makes it and all that read
 * it, its cost the words of a sample.  In a partition a net of cost c over l parts costs c (l - 1)
 * words forward, and as many backward.  Multilevel recursive bisection with Fiduccia-Mattheyses
 * refinement; the same seed, the same partition. */
#ifndef RB_PLAN_PARTITION_HYPERGRAPH_H
#define RB_PLAN_PARTITION_HYPERGRAPH_H

#include <stddef.h>
#include <stdint.h>

struct rb_hypergraph {
    uint32_t n_vertices, n_nets;
    double *work, *memory; /* by vertex; memory: all 0 where it is not looked at */
    double *costs;         /* by net */
    uint32_t *first_pin;   /* by net, and one behind */
    uint32_t *pins;        /* vertices, each once a net */
    uint32_t *first_net;   /* by vertex, and one behind: rb_hypergraph_index */
    uint32_t *nets;
    uint32_t *layers; /* by net: the layer it is an activation of; NULL: of none
                         (hypergraph_model.h) */
};

void rb_hypergraph_done(struct rb_hypergraph *graph);

/* Fill in first_net and nets. */
void rb_hypergraph_index(struct rb_hypergraph *graph);

/* Sum of c (l - 1): words a sample, forward. */
double rb_hypergraph_volume(const struct rb_hypergraph *graph, const uint32_t *parts, uint32_t n);

/* Messages a sample, forward: for each net, the parts that it is sent to. */
uint64_t rb_hypergraph_messages(const struct rb_hypergraph *graph, const uint32_t *parts,
                                uint32_t n);

/* The most work of a part over the mean, less 1. */
double rb_hypergraph_imbalance(const struct rb_hypergraph *graph, const uint32_t *parts,
                               uint32_t n);

struct rb_hypergraph_how {
    uint32_t parts;
    double epsilon;      /* no part has more than (1 + epsilon) times the mean, of either weight */
    double memory_slack; /* the same for memory; 0: not looked at */
    uint64_t seed;
    uint32_t tries; /* of which the best is taken; 0 counts as 1 */
};

/* ret_parts: by vertex.  A single vertex above the limit of a part is placed all the same. */
void rb_hypergraph_partition(const struct rb_hypergraph *graph, const struct rb_hypergraph_how *how,
                             uint32_t *ret_parts);

#endif
