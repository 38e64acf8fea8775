/* SPDX-License-Identifier: Apache-2.0 */
/* The state after a vote: updated, and given to the ranks that need it. */
#include "worker/step/attempt.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "worker/carry.h"
#include "worker/join/taking.h"
#include "worker/stages/lap.h"
#include "worker/step/update.h"
#include "worker/step/views.h"
#include "worker/tag.h"

#include <string.h>

void rb_attempt_update(const struct rb_step *step, struct rb_step_result *result)
{
    struct rb_update done = {0};

    step->changing(step->owner);
    if (rb_configuration_laps(step->configuration)) {
        rb_lap_commit(step->model);
        result->lap = result->committed = true;
        return;
    }
    if (result->decision.verdict == RB_VOTE_SKIP)
        done = rb_update_skip(step->model, &result->decision);
    else
        done = rb_update_commit(step->model, &result->decision,
                                step->configuration->placement.sharded);
    result->grad_norm = done.grad_norm;
    result->lr = done.lr;
    result->committed = true;
}

int rb_attempt_viewed(const struct rb_attempt *attempt, const struct rb_step_result *result,
                      struct rb_why *why)
{
    const struct rb_model *model = attempt->step->model;
    struct rb_coll *coll = attempt->step->configuration->coll;
    bool all;
    int err;

    if (!model->apart || result->decision.verdict != RB_VOTE_COMMIT)
        return 0;
    rb_fault("worker.viewed");
    err = rb_views_check(model, why);
    return err ? err
               : rb_coll_agree(coll, rb_tag(RB_TAG_VIEWED, model->state.level, attempt->number, 0),
                               true, &all, why);
}

/* Does each rank get by with the weights that its stage reads?  All ranks get the same answer. */
static bool reads_part(const struct rb_attempt *attempt, const struct rb_step_result *result)
{
    const struct rb_step *step = attempt->step;
    bool takes = false;

    for (uint32_t r = 0; r < step->configuration->size; r++)
        takes |= attempt->said[r].takes != 0;
    return step->configuration->stage && !takes && !result->decision.flip &&
           result->decision.collector < 0 && !step->reads_all(step->owner);
}

int rb_attempt_gather(struct rb_attempt *attempt, const struct rb_step_result *result,
                      struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_placement *placement = &configuration->placement;
    struct rb_state *state = &attempt->step->model->state;
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc(rb_placement_gifts(placement) * sizeof *moves);
    RB_CLEANUP(rb_freep) struct rb_coll_move *cut = NULL;
    size_t n = rb_placement_spread(placement, state->w, moves);
    bool part = reads_part(attempt, result);
    int err;

    rb_fault("worker.gather");
    if (part)
        n = rb_stage_moves(configuration->stage, attempt->step->model->message, state->w, moves, n,
                           &cut);
    err = rb_carry(state->device, configuration->coll, configuration->circle,
                   rb_tag(RB_TAG_GATHER, state->level, 0, 0), part ? cut : moves, n, why);
    if (!err)
        state->torn = part;
    rb_fault("worker.gathered");
    return err;
}

int rb_attempt_hand_over(struct rb_attempt *attempt, struct rb_why *why)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    const struct rb_placement *placement = &configuration->placement;
    struct rb_state *state = &attempt->step->model->state;
    RB_CLEANUP(rb_freep)
    struct rb_coll_move *moves = rb_alloc(placement->n_shards * RB_STATE_PARTS * sizeof *moves);
    size_t n = 0;
    int err;

    for (size_t i = 0; i < placement->n_shards; i++) {
        const struct rb_shard *shard = &placement->shards[i];
        int heir = rb_placement_heir(placement, attempt->stays, i);

        if (heir >= 0)
            n += rb_placement_move(state, shard->first, shard->count, shard->ranks[0],
                                   (uint32_t)heir, moves + n);
    }
    err = rb_carry(state->device, configuration->coll, configuration->circle,
                   rb_tag(RB_TAG_GATHER, state->level, 1, 0), moves, n, why);
    pthread_mutex_lock(&state->window->lock);
    for (size_t i = 0; !err && i < placement->n_shards; i++)
        if (rb_placement_heir(placement, attempt->stays, i) == (int)configuration->rank)
            memset(state->held + placement->shards[i].first_block, RB_HELD_TAKEN,
                   placement->shards[i].n_blocks);
    pthread_mutex_unlock(&state->window->lock);
    return err;
}

int rb_attempt_take(struct rb_attempt *attempt, struct rb_step_result *result, struct rb_why *why)
{
    uint64_t started = rb_clock_ns();
    int err = rb_taking_run(attempt->step->model, attempt->step->configuration, attempt->said,
                            &result->taken, why);

    result->taking_ns = rb_clock_ns() - started;
    return err;
}
