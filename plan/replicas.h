/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank holds which blocks of the state: sharded, or all of it everywhere.
 *
 * Model + members > [replicas] > Plan.shards > worker
 *                             > whether the state outlives a loss > coordinator
 *
 * Pure.  The blocks are cut into runs of about equally many elements, one run a rank, and that rank
 * is the run's primary.  With two replicas a second rank holds the run too, on another node where
 * there are several.  Weights are everywhere, because all ranks compute with them.  What is sharded
 * is what only an update needs: the optimizer's moments and the reduced sums.  In a pipeline a run
 * is made of blocks that its primary's stage computes with, so that only the ranks of that stage
 * need them.
 *
 * Which ranks hold run i follows from the number of blocks and from the nodes of the ranks alone,
 * so the coordinator, which has no Model, knows it too. */
#ifndef RB_PLAN_REPLICAS_H
#define RB_PLAN_REPLICAS_H

#include "base/error.h"
#include "plan.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_buffer;

/* What decides a placement. */
struct rb_replicas {
    uint32_t copies; /* of each block: 1, 2; 0: as many as there are ranks */
    uint64_t blocks; /* of the model */
    uint32_t ranks;
    const uint32_t *nodes; /* by rank: equal for ranks on one node; NULL: all are on one */
};

/* Is there a block that some rank does not hold? */
bool rb_replicas_sharded(const struct rb_replicas *how);

/* Runs 0..n-1; run i has rank i as its primary.  0 where nothing is sharded. */
uint32_t rb_replicas_runs(const struct rb_replicas *how);

/* By run, the rank that holds it beside its primary; the primary itself where there is one copy. */
void rb_replicas_seconds(const struct rb_replicas *how, uint32_t *ret_seconds);

/* Do the ranks that are `here` hold every block between them? */
bool rb_replicas_whole(const struct rb_replicas *how, const bool *here);

/* ", 2 replicas of each block": behind a plan's summary; nothing where all hold all. */
void rb_replicas_text(const struct rb_replicas *how, struct rb_buffer *out);

/* Add the shards to a plan that has none, and an order to gather weights to each rank's orders.
 * The plan of a pipeline must already say whether it recomputes. */
void rb_replicas_place(const struct rb_replicas *how, const Rb__Model *model, Rb__Plan *plan);

#endif
