/* SPDX-License-Identifier: Apache-2.0 */
/* One bisection: coarsen, divide the small graph, refine on the way back.
 *
 * hypergraph > [hypergraph_coarsen, hypergraph_refine] */
#ifndef RB_PLAN_PARTITION_HYPERGRAPH_INSIDE_H
#define RB_PLAN_PARTITION_HYPERGRAPH_INSIDE_H

#include "plan/partition/hypergraph.h"

#include <stdbool.h>

/* How much each side may have. */
struct rb_hypergraph_limits {
    double work[2], memory[2];
    double share; /* of side 0 in the whole */
};

/* The next of a sequence that `state` begins. */
uint64_t rb_hypergraph_random(uint64_t *state);

/* Merge the pairs of vertices that share most, none into more work than `most`.  ret_map: by
 * vertex, its number in the smaller graph.  False where little would be gained; nothing is returned
 * then. */
bool rb_hypergraph_coarsen(const struct rb_hypergraph *graph, double most, uint64_t *random,
                           struct rb_hypergraph *ret_small, uint32_t *ret_map);

/* By how much the sides are above their limits, as a part of the limits; 0: not at all. */
double rb_hypergraph_overload(const struct rb_hypergraph *graph, const uint8_t *sides,
                              const struct rb_hypergraph_limits *limits);

/* Words over the cut. */
double rb_hypergraph_cut(const struct rb_hypergraph *graph, const uint8_t *sides);

/* Move vertices one after the other, each once, those that gain most first, and keep the best state
 * that was passed on the way; repeat while that helps. */
void rb_hypergraph_refine(const struct rb_hypergraph *graph,
                          const struct rb_hypergraph_limits *limits, uint8_t *sides);

/* The best cut between vertices v and v + 1 that keeps to the limits, or overloads least; vertices
 * in front of the cut are on side 0, or on side 1 where first_last. */
void rb_hypergraph_cut_in_order(const struct rb_hypergraph *graph,
                                const struct rb_hypergraph_limits *limits, bool first_last,
                                uint8_t *ret_sides);

#endif
