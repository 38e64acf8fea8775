/* SPDX-License-Identifier: Apache-2.0 */
/* Who holds which blocks, in one configuration.
 *
 * Plan.shards > [placement] > step, opening, taking, handing over
 *
 * Without shards every rank holds every block, and rank 0 counts as the primary.  What the plan
 * says never changes; what ranks take beyond it (worker/join/taking.h) is listed beside it. */
#ifndef RB_WORKER_STATE_PLACEMENT_H
#define RB_WORKER_STATE_PLACEMENT_H

#include "base/error.h"
#include "coll/coll.h"
#include "plan.pb-c.h"
#include "worker/state/state.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A run of blocks with the same ranks: a range of the flat state. */
struct rb_shard {
    size_t first_block, n_blocks;
    size_t first, count; /* elements; the gaps between its blocks included */
    const uint32_t *ranks;
    size_t n_ranks; /* the first is the primary */
};

/* A run of blocks that a rank took, all of one shard or of neighbouring ones. */
struct rb_taken {
    uint32_t rank;
    size_t first_block, n_blocks;
    size_t first, count; /* elements */
};

struct rb_placement {
    bool sharded;
    uint32_t ranks;
    size_t blocks;
    struct rb_shard *shards; /* where it is sharded */
    size_t n_shards;
    uint8_t *holds;    /* by rank * blocks + block: 0 or 1 */
    uint32_t *primary; /* by block */
    struct rb_taken *taken;
    size_t n_taken;
};

/* RB_EINVAL: the shards do not cover the blocks, each once and in order.  Borrows from `plan`. */
int rb_placement_make(const Rb__Plan *plan, const Rb__Model *model,
                      struct rb_placement *ret_placement, struct rb_why *why);
void rb_placement_done(struct rb_placement *placement);

static inline bool rb_placement_holds(const struct rb_placement *placement, uint32_t rank,
                                      size_t block)
{
    return placement->holds[rank * placement->blocks + block];
}

/* The shard that a run of blocks is a part of, where `rank` may take the run because other ranks
 * hold it; NULL: there is no such shard. */
const struct rb_shard *rb_placement_takable(const struct rb_placement *placement, uint32_t rank,
                                            size_t first_block, size_t n_blocks);

/* `rank` holds the run too from now on, until it gives up all that it took. */
void rb_placement_take(struct rb_placement *placement, const Rb__Model *model, uint32_t rank,
                       size_t first_block, size_t n_blocks);
void rb_placement_give_up(struct rb_placement *placement, uint32_t rank);

/* The ranges of elements [first, first + count) whose sums each rank is to have, because it holds
 * them; one range for all ranks where the state is not sharded.  Returns how many; ret_ranges has
 * room for rb_placement_most. */
size_t rb_placement_most(const struct rb_placement *placement);
size_t rb_placement_ranges(const struct rb_placement *placement, size_t first, size_t count,
                           struct rb_coll_range *ret_ranges);

/* Moves of the moments of elements [first, first + count) from rank `from` to rank `to`, which
 * needs them to hold all of the state, or some.  Returns how many: one for each part that there
 * is. */
size_t rb_placement_move(const struct rb_state *state, size_t first, size_t count, uint32_t from,
                         uint32_t to, struct rb_coll_move *ret_moves);

/* The rank that is given a shard of which stayers lack some block (stays: by rank); -1: none. */
int rb_placement_heir(const struct rb_placement *placement, const bool *stays, size_t shard);

/* Moves of the weights of each shard, from its primary to all ranks that hold them neither by the
 * plan nor because they took them.  ret_moves has room for rb_placement_gifts. */
size_t rb_placement_gifts(const struct rb_placement *placement);
size_t rb_placement_spread(const struct rb_placement *placement, float *weights,
                           struct rb_coll_move *ret_moves);

#endif
