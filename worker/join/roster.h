/* SPDX-License-Identifier: Apache-2.0 */
/* Who feeds whom while a configuration is prepared.
 *
 * roles of members, what they hold > [roster] > feed, taking (in those that train)
 *                                             > follow (in newcomers)
 *
 * Pure.  Where all members that have state train together, and all others are fresh, the fresh ones
 * are fed beside the training and the flip moves nothing.  Any other mixture (a start, a crash) has
 * no roster, and neither have newcomers to members that train in laps: the members align when they
 * open the configuration.  All members agree at once, for they judge the same gathered roles.
 *
 * A block comes from a source that holds it.  Where only leavers hold it, one of the sources, its
 * heir, takes it first (worker/join/taking.h). */
#ifndef RB_WORKER_JOIN_ROSTER_H
#define RB_WORKER_JOIN_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a member says of itself before a configuration is prepared; travels as it lies. */
struct rb_role {
    uint32_t term;  /* the configuration that it trains in; 0: it does not train */
    uint32_t fresh; /* it has no state and waits for some */
    uint32_t core;  /* the core that it keeps to, counted from 1; 0: none */
    uint32_t laps;  /* it trains in laps (worker/stages/lap.h), which newcomers cannot follow */
};

struct rb_roster {
    uint32_t n_sources, n_newcomers;
    uint32_t *sources, *newcomers; /* ranks in the new configuration, ascending */
    uint32_t *cores;               /* by newcomer: as in its role */
    size_t blocks;
    int32_t *heirs;   /* by block: which source takes it from the leavers, -1: none has to */
    uint32_t *givers; /* by newcomer * blocks + block: which source gives it */
};

/* held and shall, by rank * blocks + block: a rank that trains holds the block now; a rank is to
 * hold the block in the new configuration.  NULL: each rank holds all blocks.  Returns false, and
 * makes nothing, where there can be no roster. */
bool rb_roster_make(const struct rb_role *roles, uint32_t size, const uint8_t *held,
                    const uint8_t *shall, size_t blocks, struct rb_roster *ret_roster);
void rb_roster_done(struct rb_roster *roster);

/* Index of `rank` among sources or newcomers, -1: it is none. */
int rb_roster_source(const struct rb_roster *roster, uint32_t rank);
int rb_roster_newcomer(const struct rb_roster *roster, uint32_t rank);

/* The first block from `from` on that a source gives to a newcomer (indices), roster->blocks: none.
 * Blocks are given in this order, and a log entry covers the blocks that were given before it.
 * Where several sources hold a block, each newcomer begins with another one of them. */
size_t rb_roster_next(const struct rb_roster *roster, uint32_t source, uint32_t newcomer,
                      size_t from);

/* Which source gives a newcomer what does not come in blocks. */
uint32_t rb_roster_other(const struct rb_roster *roster, uint32_t newcomer);

/* What a newcomer has of one source: the blocks that came are all at `level`. */
struct rb_stream {
    int64_t level;  /* -1: not a word yet */
    size_t missing; /* blocks and pieces of fixed bytes that are still to come */
};

/* The level at which a newcomer has everything, -1: none yet. */
int64_t rb_stream_level(const struct rb_stream *streams, size_t n);

#endif
