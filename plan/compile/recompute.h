/* SPDX-License-Identifier: Apache-2.0 */
/* Activations that are computed again: memory for time, never for bits.
 *
 * training graph > [recompute] > lower
 *
 * The forward part is cut into segments.  What crosses a cut is kept for the gradient, as is the
 * whole last segment; everything else that the gradient reads is made once more by copies of the
 * nodes that made it, right before it is wanted.  A copy is the same operator on the same inputs
 * under the same id, so it makes the same bits.  No sum takes what a copy makes: statistics are
 * those of the first time. */
#ifndef RB_PLAN_COMPILE_RECOMPUTE_H
#define RB_PLAN_COMPILE_RECOMPUTE_H

#include "graph/graph.h"

enum { RB_RECOMPUTE_SEGMENTS = 32 }; /* the most */

/* Where a forward part is cut: behind these nodes, by place.  The same for every batch size. */
struct rb_recompute_cuts {
    int n;
    int place[RB_RECOMPUTE_SEGMENTS];
};

/* Cut into segments with about equal amounts of what the gradient reads, where least crosses. */
void rb_recompute_cut(const struct rb_graph *graph, int segments,
                      struct rb_recompute_cuts *ret_cuts);

/* The last pass that changes a graph.  Cuts found at another batch size mean the same here. */
void rb_recompute(struct rb_graph *graph, const struct rb_recompute_cuts *cuts);

#endif
