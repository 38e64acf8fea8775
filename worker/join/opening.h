/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a configuration: one rule for start, growth, shrinking and crashes.
 *
 * group of the new configuration > [opening] > every member at the same level, each with the blocks
 *                                              that its placement says, the same bits everywhere
 *
 *   gather (testimonies)  each rank's level and what it has; judged alike by all ranks
 *                         (worker/join/recovery.h)
 *   no member has state   the members that were told to restore load it; then the same again
 *   the entry             to ranks that hold the sums of the last step and do not know its outcome
 *   copy                  every block, and the weights, to the ranks that lack them, all at once
 *   gather (hashes)       all ranks hold the same bits, or none goes on
 *   let go                of blocks that belong to others now
 *
 * Until the hashes agree no member lets go of anything, so the death of a member on the way loses
 * nothing that others do not have.  A member that has an older state and receives all of a newer
 * one keeps the older one until the newer one is there. */
#ifndef RB_WORKER_JOIN_OPENING_H
#define RB_WORKER_JOIN_OPENING_H

#include "worker/configuration.h"
#include "worker/model.h"

/* ret_bytes: state that this rank received.
 *
 * RB_EPEER, RB_ECANCELED: try again in another configuration; what is held is held still.
 * RB_ELOST: there is a block that no member has.  Other errors: no member can go on. */
int rb_opening_run(struct rb_model *model, const struct rb_configuration *configuration,
                   uint64_t *ret_bytes, struct rb_why *why);

#endif
