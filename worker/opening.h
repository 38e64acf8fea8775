/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a configuration: one rule for start, growth, shrinking and crashes.
 *
 * group of the new configuration > [opening] > every member at the same level with the same bits
 *
 *   gather (level)     the highest level wins; who is below it receives the state, block by block,
 * from the lowest rank that has it nobody has state   the members that were told to restore load
 * it; then the same rule gather (hash)      all hold the same bits, or nobody goes on
 *
 * A member that receives while it has an older state of its own keeps that until it has all of the
 * newer one: a source that dies on the way loses nothing. */
#ifndef RB_WORKER_OPENING_H
#define RB_WORKER_OPENING_H

#include "worker/configuration.h"
#include "worker/model.h"

/* ret_bytes: state that this rank received.
 *
 * RB_EPEER, RB_ECANCELED: try again in another configuration; the state is as before, or level -1
 * in a member that had none.  Other errors: nobody can go on. */
int rb_opening_run(struct rb_model *model, const struct rb_configuration *configuration,
                   uint64_t *ret_bytes, struct rb_why *why);

/* Who gives to whom, given each rank's level.  -1: nobody has any state.  Pure. */
int rb_opening_source(const int64_t *levels, uint32_t ranks);

#endif
