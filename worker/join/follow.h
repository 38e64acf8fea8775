/* SPDX-License-Identifier: Apache-2.0 */
/* Following: how a newcomer gets the state while the others train on.
 *
 * feed, in several sources > [follow] > state at the level of the flip
 *
 * Blocks come from several sources, each at the level that its source's stream has reached; each
 * entry of a stream brings the blocks that came through it to the next level, by the same code that
 * commits a step.  Blocks that this newcomer is not to hold come as weights alone, with the last
 * entry.  Once all streams have brought everything, each level is acknowledged, and the sources may
 * say in their votes that this newcomer is ready.  The entry of the step whose vote flips is
 * marked; it is the last. */
#ifndef RB_WORKER_JOIN_FOLLOW_H
#define RB_WORKER_JOIN_FOLLOW_H

#include "worker/configuration.h"
#include "worker/model.h"

/* Returns at the flip: the state is whole and at its level.  ret_bytes: what came.
 *
 * On an error there is no state (level -1).  Blocks that came are not kept for a later
 * configuration: it may have other sources, and its feed begins anew. */
int rb_follow_run(struct rb_model *model, const struct rb_configuration *configuration,
                  uint64_t *ret_bytes, struct rb_why *why);

#endif
