/* SPDX-License-Identifier: Apache-2.0 */
/* Taking: how a member that trains comes to hold further blocks, for a configuration to come.
 *
 * what the next configuration wants of it > [taking] > vote > moves behind a step > placement
 *
 * Where the state is in shards, a member that goes on may be given other blocks.  It says in a vote
 * which of them it would hold, a few at a time.  After that step all ranks know, the moments of
 * these blocks are moved by the training's own links, and from the next step on the member is given
 * their sums and updates them, as their other holders do.  So it is level with all ranks at any
 * moment, and the flip moves nothing.  Taking prolongs a step by a small part of its length,
 * whatever there is to take. */
#ifndef RB_WORKER_JOIN_TAKING_H
#define RB_WORKER_JOIN_TAKING_H

#include "worker/configuration.h"
#include "worker/model.h"
#include "worker/step/vote.h"

enum { RB_TAKING_LEAST = 4 << 20 }; /* bytes a step; a block in any case */

/* Has this member all that it is to take before `next` is entered, and no more?  If it has more, it
 * would give up what it needs in `next` by the very vote that flips to it (rb_taking_say). */
bool rb_taking_complete(const struct rb_state *state, const struct rb_configuration *next);

/* What this rank says in a vote of `active`: it takes up to `bytes`; or it gives up all that it
 * took, where `next` (NULL: none is prepared) does not want some of it. */
void rb_taking_say(const struct rb_model *model, const struct rb_configuration *active,
                   const struct rb_configuration *next, size_t bytes, struct rb_vote_ready *ready);

/* The configuration for which taken blocks stay, once a vote has said so; 0: none, they may be
 * given up.  From that vote on a feed may give a taken block to newcomers of configuration
 * `number`, but not before: when a block is given up its sums do not come any more, and a newcomer
 * that was given it has old bits. */
uint32_t rb_taking_stays_for(const struct rb_state *state, const struct rb_configuration *next);
bool rb_taking_gives(uint8_t held, uint32_t stays_for, uint32_t number);

/* Called by all ranks, after the step of that vote: carry out what each rank `said`.  ret_bytes:
 * that came here. */
int rb_taking_run(struct rb_model *model, struct rb_configuration *active,
                  const struct rb_vote_ready *said, size_t *ret_bytes, struct rb_why *why);

/* How much to ask for next, when taking `bytes` took `taking_ns` behind a step of `step_ns`. */
size_t rb_taking_pace(size_t bytes, uint64_t taking_ns, uint64_t step_ns);

#endif
