/* SPDX-License-Identifier: Apache-2.0 */
/* Taking: how a member that trains comes to hold further blocks, for a configuration to come.
 *
 * what the next configuration wants of it > [taking] > vote > moves behind a step > placement
 *
 * Where the state is in shards, a member that goes on may be given other blocks.  It says in a vote
 * which of them it would hold, a few at a time; behind that step all know it, the moments are moved
 * with the training's own links, and from the next step on it is given their sums and updates them,
 * as their other holders do.  So it is level with everyone at any moment, and the flip moves
 * nothing.  A step waits for it a small part of its own length, whatever there is to take. */
#ifndef RB_WORKER_JOIN_TAKING_H
#define RB_WORKER_JOIN_TAKING_H

#include "worker/configuration.h"
#include "worker/model.h"
#include "worker/step/vote.h"

enum { RB_TAKING_LEAST = 4 << 20 }; /* bytes a step; a block in any case */

/* Has it all that it is to take before `next` is entered, and no more?  Else, with a vote that
 * flips to `next`, it would give up what it needs there (rb_taking_say). */
bool rb_taking_complete(const struct rb_state *state, const struct rb_configuration *next);

/* What rank says of it in a vote of `active`: up to `bytes`, or that it gives up what `next` (NULL:
 * nothing prepares) does not want. */
void rb_taking_say(const struct rb_model *model, const struct rb_configuration *active,
                   const struct rb_configuration *next, size_t bytes, struct rb_vote_ready *ready);

/* The configuration that what is taken stays for, once a vote has said so; 0: none, it may be given
 * up.  A feed may give a block that is held so to newcomers of configuration `number` from then on:
 * of a block that is given up the sums do not come any more, and whoever was given it has old bits.
 */
uint32_t rb_taking_stays_for(const struct rb_state *state, const struct rb_configuration *next);
bool rb_taking_gives(uint8_t held, uint32_t stays_for, uint32_t number);

/* All ranks, behind the step of that vote: what `said`, by rank.  ret_bytes: that came here. */
int rb_taking_run(struct rb_model *model, struct rb_configuration *active,
                  const struct rb_vote_ready *said, size_t *ret_bytes, struct rb_why *why);

/* How much to ask for next, where `bytes` took so long behind a step that took so long. */
size_t rb_taking_pace(size_t bytes, uint64_t taking_ns, uint64_t step_ns);

#endif
