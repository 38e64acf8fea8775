/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks have of a step, and what they decide from it. */
#include "worker/step/attempt.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "worker/stages/lap.h"
#include "worker/step/update.h"
#include "worker/tag.h"

/* The squares of this rank's blocks go into the record: all ranks need them for the norm. */
static void say_squares(struct rb_attempt *attempt)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;

    if (!attempt->shape.blocks)
        return;
    rb_update_squares(model, configuration->placement.primary, configuration->rank);
    rb_vote_squares(&attempt->shape, model->record, model->squares);
}

static void hear_squares(struct rb_attempt *attempt, const void *records)
{
    const struct rb_configuration *configuration = attempt->step->configuration;
    struct rb_model *model = attempt->step->model;

    for (size_t b = 0; b < attempt->shape.blocks; b++)
        model->squares[b] =
            rb_vote_square(&attempt->shape, records, configuration->placement.primary[b], b);
}

/* All ranks come to the same, from the same records. */
static void judge_stealing(struct rb_attempt *attempt, const void *records, uint64_t voted_ns,
                           struct rb_vote_decision *decision)
{
    struct rb_steal *steal = attempt->step->configuration->steal;

    if (!steal)
        return;
    for (uint32_t r = 0; r < steal->ranks; r++)
        steal->paces[r] = rb_vote_pace(&attempt->shape, records, r);
    decision->moved = rb_vote_moved(&attempt->shape, records, steal->owners);
    steal->judged_ns = voted_ns;
    rb_steal_judge(steal, decision->times.mean, decision->times.most, decision->moved);
}

/* Finish this rank's record, in which nothing is changed any more. */
static int fill_record(struct rb_attempt *attempt, struct rb_why *why)
{
    const struct rb_step *step = attempt->step;
    struct rb_model *model = step->model;
    struct rb_vote_ready ready = {0};
    int err;

    rb_device_pull(model->device, model->largest,
                   attempt->shape.variables * sizeof *model->largest);
    rb_device_pull(model->device, model->overflow,
                   attempt->shape.variables * sizeof *model->overflow);
    for (uint32_t v = 0; v < attempt->shape.variables; v++)
        rb_vote_variable(&attempt->shape, model->record, v, model->largest[v], model->overflow[v]);
    say_squares(attempt);
    err = rb_device_check(model->device, why);
    if (err)
        return err;
    model->pending = (struct rb_pending){model->state.level, attempt->number,
                                         attempt->laps ? model->lap->steps : 0};
    rb_pace_note(&model->pace, attempt->computed_ns, attempt->computed);
    rb_vote_computed(model->record, attempt->computed_ns, rb_pace_us(&model->pace));
    step->ready(&ready, step->owner);
    rb_vote_finish(model->record, rb_state_agreement(&model->state), &ready);
    return 0;
}

/* What the others say of the change that is prepared. */
static void hear_change(struct rb_attempt *attempt, const void *records, bool flip)
{
    for (uint32_t r = 0; r < attempt->step->configuration->size; r++) {
        rb_vote_takes(&attempt->shape, records, r, &attempt->said[r]);
        attempt->stays[r] = flip && rb_vote_stays(&attempt->shape, records, r);
    }
}

int rb_attempt_vote(struct rb_attempt *attempt, struct rb_vote_decision *ret_decision,
                    struct rb_why *why)
{
    const struct rb_step *step = attempt->step;
    struct rb_model *model = step->model;
    size_t bytes = rb_vote_bytes(&attempt->shape);
    RB_CLEANUP(rb_freep) uint8_t *records = rb_alloc(bytes * step->configuration->size);
    uint64_t voted_ns;
    int err = rb_attempt_say(attempt, why);

    err = err ? err : rb_configuration_settle(step->configuration, why);
    if (!err && attempt->laps)
        err = rb_lap_report(model, step->configuration, why);
    if (err)
        return err;
    rb_attempt_close_sums(attempt);
    err = fill_record(attempt, why);
    if (err)
        return err;
    rb_fault("worker.vote");
    err = rb_coll_gather(step->configuration->coll,
                         rb_tag(RB_TAG_VOTE, model->state.level, attempt->number, 0), model->record,
                         records, bytes, why);
    step->voted(step->owner);
    if (err)
        return err;
    voted_ns = rb_clock_ns();
    rb_fault("worker.voted");
    err = rb_vote_decide(&attempt->shape, records, step->configuration->size, model->state.level,
                         attempt->number, model->exponents, model->limits, ret_decision,
                         model->largest, why);
    if (err)
        return err;
    judge_stealing(attempt, records, voted_ns, ret_decision);
    if (attempt->laps)
        ret_decision->verdict = RB_VOTE_COMMIT; /* each stage has decided, step by step */
    if (ret_decision->verdict == RB_VOTE_COMMIT)
        hear_squares(attempt, records);
    hear_change(attempt, records, ret_decision->flip);
    return 0;
}
