/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/taking.h"

#include "base/arena.h"
#include "base/fault.h"
#include "worker/carry.h"
#include "worker/join/wire.h"
#include "worker/tag.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 30, DEAR = 8, CHEAP = 32 }; /* parts of a step */

static bool wants(const struct rb_configuration *next, size_t block)
{
    return next && next->wants && next->wants[block];
}

static bool has_needless(const struct rb_state *state, const struct rb_configuration *next)
{
    for (size_t b = 0; b < state->blocks; b++)
        if (state->held[b] == RB_HELD_TAKEN && !wants(next, b))
            return true;
    return false;
}

/* A member that took blocks for another configuration gives up all of them first. */
bool rb_taking_complete(const struct rb_state *state, const struct rb_configuration *next)
{
    for (size_t b = 0; b < state->blocks; b++)
        if (wants(next, b) && !rb_held_follows(state->held[b]))
            return false;
    return !has_needless(state, next);
}

/* ---- What to say ----------------------------------------------------------------------------*/

static size_t moment_bytes(const struct rb_model *model, size_t block)
{
    return rb_wire_block_bytes(&model->state, model->message->blocks[block]) -
           (size_t)model->message->blocks[block]->count * sizeof(float);
}

/* The next run behind `from`, as long as `bytes` and its shard last. */
static void find_run(const struct rb_model *model, const struct rb_configuration *active,
                     const struct rb_configuration *next, size_t from, size_t bytes,
                     struct rb_vote_ready *ready)
{
    const struct rb_state *state = &model->state;
    size_t first = from, sum = 0;

    while (first < state->blocks && !(wants(next, first) && !state->held[first]))
        first++;
    for (size_t b = first; b < state->blocks && wants(next, b) && !state->held[b]; b++) {
        sum += moment_bytes(model, b);
        if ((b > first && sum > bytes) ||
            !rb_placement_takable(&active->placement, active->rank, first, b - first + 1))
            break;
        ready->takes_first = (uint32_t)first;
        ready->takes++;
    }
}

/* Ranks begin at different blocks, so that they ask different ranks. */
void rb_taking_say(const struct rb_model *model, const struct rb_configuration *active,
                   const struct rb_configuration *next, size_t bytes, struct rb_vote_ready *ready)
{
    if (!active->placement.sharded)
        return;
    ready->gives_up = has_needless(&model->state, next);
    if (ready->gives_up)
        return;
    find_run(model, active, next, model->state.blocks * active->rank / active->size, bytes, ready);
    if (!ready->takes)
        find_run(model, active, next, 0, bytes, ready);
}

uint32_t rb_taking_stays_for(const struct rb_state *state, const struct rb_configuration *next)
{
    return next && !has_needless(state, next) ? next->number : 0;
}

bool rb_taking_gives(uint8_t held, uint32_t stays_for, uint32_t number)
{
    return held == RB_HELD || (held == RB_HELD_TAKEN && stays_for == number);
}

/* ---- What to do -----------------------------------------------------------------------------*/

static int add_moves(const struct rb_model *model, const struct rb_placement *placement,
                     uint32_t rank, const struct rb_vote_ready *said, struct rb_coll_move *moves,
                     size_t *n, struct rb_why *why)
{
    const struct rb_shard *shard =
        rb_placement_takable(placement, rank, said->takes_first, said->takes);
    const Rb__Block *first, *last;

    if (!shard)
        return rb_why_set(why, RB_EINTERNAL, "rank %u asks for %u blocks from %u on", rank,
                          said->takes, said->takes_first);
    first = model->message->blocks[said->takes_first];
    last = model->message->blocks[said->takes_first + said->takes - 1];
    *n += rb_placement_move(&model->state, (size_t)first->first,
                            (size_t)(last->first + last->count - first->first),
                            shard->ranks[rank % shard->n_ranks], rank, moves + *n);
    return 0;
}

/* Under the window's lock, as a feed copies what is held (worker/join/feed.h). */
static void note(struct rb_model *model, struct rb_configuration *active, uint32_t rank,
                 const struct rb_vote_ready *said)
{
    struct rb_state *state = &model->state;
    bool mine = rank == active->rank;

    pthread_mutex_lock(&state->window->lock);
    if (said->gives_up) {
        rb_placement_give_up(&active->placement, rank);
        if (mine)
            rb_model_hold(model, active->placement.holds + rank * state->blocks);
    } else if (said->takes) {
        rb_placement_take(&active->placement, model->message, rank, said->takes_first, said->takes);
        if (mine)
            memset(state->held + said->takes_first, RB_HELD_TAKEN, said->takes);
    }
    pthread_mutex_unlock(&state->window->lock);
}

int rb_taking_run(struct rb_model *model, struct rb_configuration *active,
                  const struct rb_vote_ready *said, size_t *ret_bytes, struct rb_why *why)
{
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc(active->size * RB_STATE_PARTS * sizeof *moves);
    size_t n = 0, bytes = 0;
    int err = 0;

    for (uint32_t r = 0; !err && r < active->size; r++)
        if (said[r].takes)
            err = add_moves(model, &active->placement, r, &said[r], moves, &n, why);
    if (!err && n)
        err = rb_carry(model->device, active->coll, active->circle,
                       rb_tag(RB_TAG_GATHER, model->state.level, 3, 0), moves, n, why);
    if (err)
        return err;
    for (uint32_t r = 0; r < active->size; r++)
        note(model, active, r, &said[r]);
    for (size_t i = 0; i < n; i++)
        if (moves[i].to == (int)active->rank)
            bytes += moves[i].size;
    if (bytes)
        rb_fault("worker.taken");
    *ret_bytes = bytes;
    return 0;
}

size_t rb_taking_pace(size_t bytes, uint64_t taking_ns, uint64_t step_ns)
{
    if (taking_ns > step_ns / DEAR && bytes > RB_TAKING_LEAST)
        return bytes / 2;
    if (taking_ns < step_ns / CHEAP && bytes < MOST)
        return bytes * 2;
    return bytes;
}
