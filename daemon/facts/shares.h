/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank computes which microbatches in a configuration.
 *
 * Configuration in facts > [shares] > plan/schedule, which the coordinator asks behind a crash and
 *                                     every agent for the plan itself
 *
 * Even shares follow from the number of members and are not written down.  Where some members are
 * quicker (Member.microbatch_us) and it pays, shares follow speed.  Behind a crash members keep the
 * microbatches that they had, whose sums they still hold, and those of the dead go where they are
 * done soonest.  Such shares are written as runs.  In a pipeline every stage has all microbatches,
 * and so has every part where filters are split: no shares are written, not even where one member
 * is left. */
#ifndef RB_DAEMON_FACTS_SHARES_H
#define RB_DAEMON_FACTS_SHARES_H

#include "base/arena.h"
#include "base/error.h"
#include "facts.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

/* By microbatch, the rank that computes it (the arena's).  RB_EINVAL: the runs leave a microbatch
 * out, or have one twice. */
int rb_shares_of(const Rb__Configuration *configuration, uint32_t microbatches,
                 struct rb_arena *arena, int32_t **ret_owners, struct rb_why *why);

/* How many microbatches of a step each rank computes (the arena's); NULL: the configuration is a
 * pipeline, or its runs are no shares. */
uint32_t *rb_shares_counts(const Rb__Configuration *configuration, uint32_t microbatches,
                           struct rb_arena *arena);
/* Is the configuration to be data parallel at any number of members?  Only then do microbatches
 * have owners. */
bool rb_shares_has(const Rb__Configuration *configuration);

/* Whether each microbatch is one rank's alone, or goes through stages, or is split by filters. */
struct rb_shape {
    uint32_t stages; /* or parts; 0: none */
    bool split;
};
struct rb_shape rb_shares_shape(const Rb__Configuration *configuration);

/* What a configuration is called: its plan's summary (the arena's). */
char *rb_shares_summary(const Rb__Configuration *configuration, const int32_t *owners,
                        uint32_t microbatches, uint64_t blocks, struct rb_arena *arena);

/* How long the member that is done last computes in a step, us: with the shares that the
 * configuration has, and with shares by the speed that its members have.  False: a member has no
 * speed, or these are no shares of microbatches (a pipeline). */
bool rb_shares_price(const Rb__Configuration *configuration, uint32_t microbatches,
                     struct rb_arena *arena, double *ret_as_it_is, double *ret_by_speed);

/* Cut shares by speed, where that is better than even ones. */
void rb_shares_cut(Rb__Configuration *configuration, uint32_t microbatches, struct rb_arena *arena);

/* `next` follows a crash of `last`: its members get runs, and it gets its summary. */
void rb_shares_after(const Rb__Configuration *last, uint32_t microbatches, Rb__Configuration *next,
                     struct rb_arena *arena);

#endif
