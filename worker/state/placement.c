/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/state/placement.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

static bool is_among(const struct rb_shard *shard, uint32_t rank)
{
    for (size_t i = 0; i < shard->n_ranks; i++)
        if (shard->ranks[i] == rank)
            return true;
    return false;
}

static int check_shard(const Rb__Shard *message, size_t i, size_t next, size_t blocks,
                       uint32_t ranks, struct rb_why *why)
{
    if (message->first_block != next || !message->n_blocks || message->n_blocks > blocks - next ||
        !message->n_ranks || message->n_ranks > ranks)
        return rb_why_set(why, RB_EINVAL, "shard %zu, %u blocks from %u on, is out of place", i,
                          message->n_blocks, message->first_block);
    for (size_t r = 0; r < message->n_ranks; r++) {
        if (message->ranks[r] >= ranks)
            return rb_why_set(why, RB_EINVAL, "shard %zu is held by rank %u of %u", i,
                              message->ranks[r], ranks);
        for (size_t s = 0; s < r; s++)
            if (message->ranks[s] == message->ranks[r])
                return rb_why_set(why, RB_EINVAL, "shard %zu is held twice by rank %u", i,
                                  message->ranks[r]);
    }
    return 0;
}

static void add_shard(struct rb_placement *placement, const Rb__Shard *message,
                      const Rb__Model *model)
{
    struct rb_shard *shard = &placement->shards[placement->n_shards++];
    const Rb__Block *last = model->blocks[message->first_block + message->n_blocks - 1];

    shard->first_block = message->first_block;
    shard->n_blocks = message->n_blocks;
    shard->first = (size_t)model->blocks[message->first_block]->first;
    shard->count = (size_t)(last->first + last->count) - shard->first;
    shard->ranks = message->ranks;
    shard->n_ranks = message->n_ranks;
    for (size_t b = shard->first_block; b < shard->first_block + shard->n_blocks; b++) {
        placement->primary[b] = shard->ranks[0];
        for (uint32_t r = 0; r < placement->ranks; r++)
            placement->holds[r * placement->blocks + b] = is_among(shard, r);
    }
}

/* A shard is one range of the flat state. */
static int check_blocks(const Rb__Model *model, struct rb_why *why)
{
    for (size_t b = 1; b < model->n_blocks; b++)
        if (model->blocks[b]->first < model->blocks[b - 1]->first + model->blocks[b - 1]->count)
            return rb_why_set(why, RB_EINVAL, "block %zu is not behind the one before it", b);
    return 0;
}

static int place(struct rb_placement *placement, const Rb__Plan *plan, const Rb__Model *model,
                 struct rb_why *why)
{
    size_t next = 0;
    int err = check_blocks(model, why);

    placement->shards = rb_alloc(plan->n_shards * sizeof *placement->shards);
    for (size_t i = 0; !err && i < plan->n_shards; i++) {
        const Rb__Shard *message = plan->shards[i];

        err = check_shard(message, i, next, placement->blocks, placement->ranks, why);
        if (err)
            break;
        add_shard(placement, message, model);
        next += message->n_blocks;
    }
    if (!err && next != placement->blocks)
        err = rb_why_set(why, RB_EINVAL, "no shard has block %zu", next);
    return err;
}

int rb_placement_make(const Rb__Plan *plan, const Rb__Model *model,
                      struct rb_placement *ret_placement, struct rb_why *why)
{
    struct rb_placement placement = {
        .sharded = plan->n_shards != 0,
        .ranks = (uint32_t)plan->n_ranks,
        .blocks = model->n_blocks,
    };
    int err;

    placement.holds = rb_alloc(placement.ranks * placement.blocks + 1);
    placement.primary = rb_alloc((placement.blocks + 1) * sizeof *placement.primary);
    memset(placement.holds, 1, placement.ranks * placement.blocks);
    err = placement.sharded ? place(&placement, plan, model, why) : 0;
    if (err) {
        rb_placement_done(&placement);
        return err;
    }
    *ret_placement = placement;
    return 0;
}

void rb_placement_done(struct rb_placement *placement)
{
    free(placement->shards);
    free(placement->holds);
    free(placement->primary);
    free(placement->taken);
    *placement = (struct rb_placement){0};
}

/* ---- Taken blocks ---------------------------------------------------------------------------*/

const struct rb_shard *rb_placement_takable(const struct rb_placement *placement, uint32_t rank,
                                            size_t first_block, size_t n_blocks)
{
    for (size_t i = 0; n_blocks && i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];
        size_t end = shard->first_block + shard->n_blocks;

        if (first_block >= shard->first_block && first_block < end)
            return n_blocks <= end - first_block && !is_among(shard, rank) ? shard : NULL;
    }
    return NULL;
}

static struct rb_taken *add_taken(struct rb_placement *placement, uint32_t rank, size_t first_block)
{
    struct rb_taken *taken;

    for (size_t i = 0; i < placement->n_taken; i++) {
        taken = &placement->taken[i];
        if (taken->rank == rank && taken->first_block + taken->n_blocks == first_block)
            return taken;
    }
    placement->taken =
        rb_realloc(placement->taken, (placement->n_taken + 1) * sizeof *placement->taken);
    taken = &placement->taken[placement->n_taken++];
    *taken = (struct rb_taken){.rank = rank, .first_block = first_block};
    return taken;
}

void rb_placement_take(struct rb_placement *placement, const Rb__Model *model, uint32_t rank,
                       size_t first_block, size_t n_blocks)
{
    struct rb_taken *taken = add_taken(placement, rank, first_block);
    const Rb__Block *last = model->blocks[first_block + n_blocks - 1];

    taken->n_blocks += n_blocks;
    taken->first = (size_t)model->blocks[taken->first_block]->first;
    taken->count = (size_t)(last->first + last->count) - taken->first;
}

void rb_placement_give_up(struct rb_placement *placement, uint32_t rank)
{
    size_t n = 0;

    for (size_t i = 0; i < placement->n_taken; i++)
        if (placement->taken[i].rank != rank)
            placement->taken[n++] = placement->taken[i];
    placement->n_taken = n;
}

/* ---- Who is given what ----------------------------------------------------------------------*/

size_t rb_placement_most(const struct rb_placement *placement)
{
    size_t most = placement->n_taken + !placement->sharded;

    for (size_t i = 0; i < placement->n_shards; i++)
        most += placement->shards[i].n_ranks;
    return most;
}

/* What two ranges of elements have in common, for a rank; count 0: nothing. */
static struct rb_coll_range common(uint32_t rank, size_t first, size_t end, size_t from, size_t to)
{
    if (from < first)
        from = first;
    if (to > end)
        to = end;
    return (struct rb_coll_range){(int)rank, from, from < to ? to - from : 0};
}

size_t rb_placement_ranges(const struct rb_placement *placement, size_t first, size_t count,
                           struct rb_coll_range *ret_ranges)
{
    size_t n = 0, end = first + count;

    if (!placement->sharded)
        ret_ranges[n++] = (struct rb_coll_range){RB_COLL_ALL, first, count, NULL};
    for (size_t i = 0; i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];

        for (size_t r = 0; r < shard->n_ranks; r++) {
            ret_ranges[n] =
                common(shard->ranks[r], first, end, shard->first, shard->first + shard->count);
            n += ret_ranges[n].count != 0;
        }
    }
    for (size_t i = 0; i < placement->n_taken; i++) {
        const struct rb_taken *taken = &placement->taken[i];

        ret_ranges[n] = common(taken->rank, first, end, taken->first, taken->first + taken->count);
        n += ret_ranges[n].count != 0;
    }
    return n;
}

size_t rb_placement_gifts(const struct rb_placement *placement)
{
    return placement->n_shards * placement->ranks + placement->n_taken;
}

/* The first run taken by `rank` that reaches into [from, end); NULL: none does.  Blocks taken of
 * two shards may be one run. */
static const struct rb_taken *next_taken(const struct rb_placement *placement, uint32_t rank,
                                         size_t from, size_t end)
{
    const struct rb_taken *found = NULL;

    for (size_t i = 0; i < placement->n_taken; i++) {
        const struct rb_taken *taken = &placement->taken[i];

        if (taken->rank == rank && taken->first + taken->count > from && taken->first < end &&
            (!found || taken->first < found->first))
            found = taken;
    }
    return found;
}

/* A shard to a rank that holds none of it but what it took, which that rank updates itself. */
static size_t spread_to(const struct rb_placement *placement, const struct rb_shard *shard,
                        uint32_t rank, float *weights, struct rb_coll_move *ret_moves)
{
    size_t n = 0, at = shard->first, end = shard->first + shard->count;

    while (at < end) {
        const struct rb_taken *taken = next_taken(placement, rank, at, end);
        size_t until = taken ? taken->first : end;

        if (until > at)
            ret_moves[n++] = (struct rb_coll_move){
                .from = (int)shard->ranks[0],
                .to = (int)rank,
                .bytes = weights + at,
                .size = (until - at) * sizeof *weights,
            };
        at = taken ? taken->first + taken->count : end;
    }
    return n;
}

size_t rb_placement_spread(const struct rb_placement *placement, float *weights,
                           struct rb_coll_move *ret_moves)
{
    size_t n = 0;

    for (size_t i = 0; i < placement->n_shards; i++)
        for (uint32_t r = 0; r < placement->ranks; r++)
            if (!is_among(&placement->shards[i], r))
                n += spread_to(placement, &placement->shards[i], r, weights, ret_moves + n);
    return n;
}

size_t rb_placement_move(const struct rb_state *state, size_t first, size_t count, uint32_t from,
                         uint32_t to, struct rb_coll_move *ret_moves)
{
    size_t n = 0;

    for (int part = RB_STATE_M; part < RB_STATE_PARTS; part++)
        if (rb_state_part(state, part))
            ret_moves[n++] = (struct rb_coll_move){
                .from = (int)from,
                .to = (int)to,
                .bytes = rb_state_part(state, part) + first,
                .size = count * sizeof(float),
            };
    return n;
}

/* Does a stayer hold the block, by its shard or because it took it? */
static bool stays_held(const struct rb_placement *placement, const bool *stays,
                       const struct rb_shard *shard, size_t block)
{
    for (size_t i = 0; i < shard->n_ranks; i++)
        if (stays[shard->ranks[i]])
            return true;
    for (size_t i = 0; i < placement->n_taken; i++) {
        const struct rb_taken *taken = &placement->taken[i];

        if (stays[taken->rank] && block >= taken->first_block &&
            block < taken->first_block + taken->n_blocks)
            return true;
    }
    return false;
}

/* Heirs are the stayers in turn. */
int rb_placement_heir(const struct rb_placement *placement, const bool *stays, size_t shard)
{
    const struct rb_shard *one = &placement->shards[shard];
    size_t stayers = 0, lacking = 0, turn;

    for (size_t b = one->first_block; b < one->first_block + one->n_blocks; b++)
        lacking += !stays_held(placement, stays, one, b);
    if (!lacking)
        return -1;
    for (uint32_t r = 0; r < placement->ranks; r++)
        stayers += stays[r];
    if (!stayers)
        return -1;
    turn = shard % stayers;
    for (uint32_t r = 0; r < placement->ranks; r++)
        if (stays[r] && turn-- == 0)
            return (int)r;
    return -1;
}
