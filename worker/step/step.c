/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/step/step.h"

#include "base/arena.h"
#include "worker/lanes.h"
#include "worker/stages/flight.h"
#include "worker/stages/lap.h"
#include "worker/step/attempt.h"
#include "worker/step/views.h"
#include "worker/tag.h"

#include <stdlib.h>
#include <string.h>

/* A redo asks for exponents that fit; this many in a row mean that the arithmetic is broken. */
enum { ATTEMPTS_LIMIT = 8 };

/* Ranks that all compute wait for each other, and seldom for long. */
enum { LOOK_NS = 50000 };

static bool ordered(const Rb__RankPlan *orders, uint32_t microbatch)
{
    for (size_t i = 0; i < orders->n_orders; i++)
        if (orders->orders[i]->kind == RB__ORDER__KIND__COMPUTE &&
            orders->orders[i]->argument == microbatch)
            return true;
    return false;
}

/* How many microbatches of the sums in the model can be taken over as they are? */
static uint32_t count_kept(const struct rb_step *step)
{
    const struct rb_model *model = step->model;
    uint32_t kept = 0;

    if (model->kept < 0 || model->kept != model->state.level || step->configuration->stage)
        return 0;
    for (size_t v = 0; v < model->state.variables; v++)
        if (model->exponents[v].exponent != model->state.exponents[v].exponent)
            return 0;
    for (uint32_t m = 0; m < model->microbatches; m++) {
        if (!rb_vote_holds(model->record, m))
            continue;
        if (!ordered(step->configuration->orders, m))
            return 0; /* another rank counts it now: sums cannot be taken apart */
        kept++;
    }
    return kept;
}

/* Programs of whole microbatches, of a stage or of filters; what only the others need is given
 * back. */
static int prepare_programs(struct rb_attempt *attempt, struct rb_why *why)
{
    const struct rb_stage *stage = attempt->step->configuration->stage;
    struct rb_model *model = attempt->step->model;

    if (stage && !stage->split) {
        rb_flights_land(model);
        return 0;
    }
    rb_flights_free(model);
    return stage ? rb_attempt_part_begin(attempt, why)
                 : rb_lanes_open(model, model->runner, model->last_runner, why);
}

static int start_attempt(struct rb_attempt *attempt, uint32_t kept, struct rb_why *why)
{
    struct rb_model *model = attempt->step->model;
    uint32_t number = attempt->step->configuration->number;
    const int32_t *empty = RB_TAKE(model->empty);
    int err = 0;

    rb_views_begin(model, rb_tag(RB_TAG_VIEWS, model->state.level, attempt->number, number),
                   number);
    model->kept = model->pending.level = -1;
    attempt->computed_ns = attempt->began_ns = 0;
    attempt->computed = attempt->n_unsaid = 0;
    attempt->alone = rb_attempt_alone(attempt);
    err = prepare_programs(attempt, why);
    if (err)
        return err;
    if (kept) {
        rb_vote_again(model->record, attempt->step->configuration->rank, model->state.level,
                      attempt->number);
        return 0;
    }

    rb_attempt_open_sums(attempt, empty);
    rb_vote_start(&attempt->shape, model->record, attempt->step->configuration->rank,
                  model->state.level, attempt->number);
    return attempt->laps ? rb_lap_begin(model, attempt->step->configuration, why) : 0;
}

/* All orders; or those up to the vote, where the vote says redo. */
static int run_attempt(struct rb_attempt *attempt, struct rb_step_result *result,
                       struct rb_why *why)
{
    const Rb__RankPlan *orders = attempt->step->configuration->orders;
    const struct rb_steal *steal = attempt->step->configuration->steal;
    bool shared = steal && steal->on; /* before the vote, which judges anew */
    int err = shared ? rb_attempt_shared(attempt, why) : 0;

    for (size_t i = 0; !err && i < orders->n_orders; i++) {
        const Rb__Order *order = orders->orders[i];

        if (atomic_load(attempt->step->stop) && !result->committed &&
            order->kind != RB__ORDER__KIND__UPDATE)
            return rb_why_set(why, RB_ECANCELED, "stopped");
        switch (order->kind) {
        case RB__ORDER__KIND__COMPUTE:
            if (attempt->step->configuration->stage)
                err = rb_attempt_part(attempt, &i, why);
            else if (!shared)
                err = rb_attempt_planned(attempt, &i, why);
            break;
        case RB__ORDER__KIND__FORWARD:
        case RB__ORDER__KIND__BACKWARD:
            err = rb_attempt_stage(attempt, order, why);
            break;
        case RB__ORDER__KIND__REDUCE:
            err = rb_attempt_reduce(attempt, order->argument, why);
            break;
        case RB__ORDER__KIND__VOTE:
            err = rb_attempt_vote(attempt, &result->decision, why);
            if (!err && result->decision.verdict == RB_VOTE_REDO)
                return 0;
            break;
        case RB__ORDER__KIND__UPDATE:
            rb_attempt_update(attempt->step, result);
            err = rb_device_check(attempt->step->model->device, why);
            err = err ? err : rb_attempt_viewed(attempt, result, why);
            break;
        default:
            err = rb_attempt_gather(attempt, result, why);
            if (!err)
                err = rb_attempt_take(attempt, result, why);
            if (!err && result->decision.flip)
                err = rb_attempt_hand_over(attempt, why);
        }
    }
    return err;
}

int rb_step_run(const struct rb_step *step, struct rb_step_result *ret_result, struct rb_why *why)
{
    struct rb_model *model = step->model;
    const struct rb_stage *stage = step->configuration->stage;
    struct rb_attempt attempt = {
        .step = step,
        .laps = rb_configuration_laps(step->configuration),
        .shape = {model->microbatches, (uint32_t)model->message->n_variables,
                  step->configuration->placement.sharded ? model->message->n_blocks : 0,
                  stage ? stage->stages : 0, stage ? stage->of_rank : NULL},
    };
    RB_CLEANUP(rb_freep) bool *stays = rb_alloc(step->configuration->size * sizeof *stays);
    RB_CLEANUP(rb_freep)
    struct rb_vote_ready *said = rb_alloc(step->configuration->size * sizeof *said);
    RB_CLEANUP(rb_freep)
    struct rb_unsaid *unsaid = rb_alloc((model->microbatches + 1) * sizeof *unsaid);
    struct rb_step_result result = {.kept = count_kept(step)};
    int err = 0;

    rb_coll_look_for(step->configuration->coll, LOOK_NS);
    attempt.stays = stays;
    attempt.said = said;
    attempt.unsaid = unsaid;
    memcpy(model->exponents, model->state.exponents,
           model->state.variables * sizeof *model->exponents);
    if (attempt.laps) /* what came of a lap is not in the vote */
        attempt.shape.microbatches = attempt.shape.variables = attempt.shape.blocks = 0;
    for (uint32_t kept = result.kept; !err; kept = 0) {
        err = rb_source_check(model->train, why);
        err = err ? err : start_attempt(&attempt, kept, why);
        if (!err)
            err = run_attempt(&attempt, &result, why);
        if (err || result.decision.verdict != RB_VOTE_REDO)
            break;
        if (++attempt.number == ATTEMPTS_LIMIT)
            err = rb_why_set(why, RB_EINTERNAL, "%d attempts were voted down", ATTEMPTS_LIMIT);
        result.redone++;
        for (size_t v = 0; v < model->message->n_variables; v++)
            rb_exponent_redo(&model->exponents[v], model->largest[v], model->limits[v]);
    }
    if (err == RB_EPEER && !result.committed && !stage && !attempt.n_unsaid)
        model->kept = model->state.level; /* the record has all microbatches that are in the sums */
    *ret_result = result;
    return err ? rb_why_add(why, err, "step %lld",
                            (long long)model->state.level + !result.committed)
               : 0;
}
