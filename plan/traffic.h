/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a pipeline send each other of the state in a step: sums of gradients in front
 * of the vote, weights behind the update.
 *
 * Model, Plan.courses, Plan.shards > [traffic] > the price of a pipeline
 *
 * A block's summands come from the ranks of the stages that make it.  In shards the summands go to
 * each other rank that holds the block; the block's primary then gives its weights to the ranks
 * that read them and do not hold the block.  Where all of the state is everywhere the sums go to
 * all ranks, and no weights are sent.  coll/coll.h says what that sends; message headers are not
 * counted here. */
#ifndef RB_PLAN_TRAFFIC_H
#define RB_PLAN_TRAFFIC_H

#include "plan.pb-c.h"

#include <stdint.h>

/* By rank. */
struct rb_traffic {
    uint32_t ranks;
    uint32_t crossings;           /* of links that a sum takes, one after the other */
    double *sums, *sums_in;       /* bytes sent and received */
    double *weights, *weights_in; /* the same */
    double *held;                 /* elements that the rank updates */
};

/* `plan` has stages and no laps. */
void rb_traffic_find(const Rb__Model *model, const Rb__Plan *plan, struct rb_traffic *ret_traffic);
void rb_traffic_done(struct rb_traffic *traffic);

#endif
