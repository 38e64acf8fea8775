/* SPDX-License-Identifier: Apache-2.0 */
/* What going from one number of devices to another moves, and for how long it stops the training.
 *
 * Model + before + after + cluster > [move] > bytes, stall */
#ifndef RB_PLAN_SEARCH_MOVE_H
#define RB_PLAN_SEARCH_MOVE_H

#include "plan.pb-c.h"
#include "plan/simulate/cluster.h"

struct rb_move_side {
    uint32_t ranks;  /* the first so many devices of the cluster */
    uint32_t copies; /* of each block; 0: one a rank */
};

struct rb_move {
    double bytes;   /* that change hands in all */
    double seconds; /* that they take at least: those of the slowest receiver */
    double stall;   /* of those, how long no rank trains */
};

/* `step`: seconds of a step before.  Where every rank holds everything, newcomers receive the state
 * beside the training, and what each step did to it meanwhile: no rank waits.  Shards are copied
 * between two steps.  What a new process needs to start is not counted: the others train on. */
void rb_move_price(const Rb__Model *model, const struct rb_cluster *cluster,
                   struct rb_move_side before, struct rb_move_side after, double step,
                   struct rb_move *ret_move);

#endif
