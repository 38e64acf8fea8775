/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread in a configuration: step after step, and what is due behind each. */
#include "worker/train_inside.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "worker/step/evaluate.h"
#include "worker/stages/flight.h"
#include "worker/join/taking.h"
#include "worker/stages/lap.h"
#include "worker/step/step.h"

#include <inttypes.h>
#include <stdio.h>

enum { WAITS_EVERY = 32 }; /* steps */

/* Where steps are shorter than the way to a newcomer and back, the newcomer is never level when it
 * is asked.  So every WAITS_EVERY steps there is a pause, at the same steps everywhere; a change
 * that lacks blocks still waits for nobody. */
static bool feeds_level(const struct rb_train *train, struct rb_feed *feed)
{
    int64_t level = rb_train_level(train);

    return level % WAITS_EVERY ? rb_feed_level(feed, level)
                               : rb_feed_wait_level(feed, level, train->stop);
}

/* Does this rank have the blocks that it is to hold in `next`, and the newcomers that it feeds the
 * present level?  Then the entry of this step is all that they lack. */
static bool is_vouched_for(const struct rb_train *train)
{
    const struct rb_configuration *next = train->next;

    if (rb_configuration_follows(next))
        return false; /* this rank has come to a state meanwhile: `next` will be abandoned */
    return rb_taking_complete(&train->model->state, next) &&
           (!next->feed || feeds_level(train, next->feed));
}

static void say_ready(struct rb_vote_ready *ret_ready, void *owner)
{
    struct rb_train *train = owner;

    rb_feed_ease(train->model->state.window, rb_train_level(train), train->stop);
    rb_mailbox_ready(train->mailbox, &train->next, ret_ready);
    if (train->next && !is_vouched_for(train))
        *ret_ready = (struct rb_vote_ready){0};
    rb_taking_say(train->model, train->active, train->next, train->pace, ret_ready);
    rb_window_keep(train->model->state.window,
                   rb_taking_stays_for(&train->model->state, train->next));
    ret_ready->collects =
        train->active->placement.sharded &&
        rb_saves_want(&train->saves, train->active->rank, rb_lap_next(train->model, train->active));
}

static void heard_all(void *owner)
{
    const struct rb_train *train = owner;

    rb_mailbox_voted(train->mailbox);
}

/* While it updates a whole state, this rank itself copies what a save still lacks.  Where the state
 * is in shards, weights change that are not this rank's, too. */
static void wait_copied(void *owner)
{
    struct rb_train *train = owner;

    if (!rb_state_whole(&train->model->state))
        rb_saves_wait_copied(&train->saves);
}

bool rb_train_evaluates(const struct rb_train *train)
{
    const Rb__Model *model = train->model->message;
    int64_t level = rb_train_level(train);

    return train->model->n_chunks && model->eval_every > 0 && level > 0 &&
           (level % model->eval_every == 0 || level == model->steps);
}

/* Evaluation reads all weights, and so does the rank that saves the end. */
static bool reads_all(void *owner)
{
    const struct rb_train *train = owner;

    return rb_train_evaluates(train) || rb_train_level(train) >= train->model->message->steps;
}

/* Too many steps in a row without usable gradients: every rank counts the same and fails alike. */
static bool gives_up(const struct rb_train *train)
{
    const Rb__Model *model = train->model->message;
    int64_t limit = model->stop_on_non_finite ? 1 : model->non_finite_limit;

    return train->model->state.not_finite && train->model->state.not_finite >= limit;
}

static enum rb_train_phase give_up(struct rb_train *train)
{
    char reason[128];
    enum rb_train_phase phase;

    snprintf(reason, sizeof reason,
             "step %" PRId64 ": gradients or loss were not finite in %" PRId64 " step%s",
             rb_train_level(train), train->model->state.not_finite,
             train->model->state.not_finite == 1 ? "" : "s in a row");
    phase = rb_train_fail(train, RB_EINVAL, reason);
    rb_train_leave_groups(train);
    return phase;
}

/* evaluation: NULL where there is none, or none yet (interrupted). */
static void tell_row(struct rb_train *train, const struct rb_step_result *result,
                     const struct rb_evaluation *evaluation, bool interrupted, uint64_t started)
{
    rb_tell_row(train->reports, train->active, train->model, result, evaluation,
                interrupted && rb_train_evaluates(train), (double)(rb_clock_ns() - started) / 1e6);
    rb_fault("worker.row");
}

/* A death right after a commit may have kept this rank, or others, from what was due at this level:
 * all of the configuration do it. */
static enum rb_train_phase make_up(struct rb_train *train)
{
    struct rb_evaluation evaluation;
    struct rb_why why = {0};
    int err = 0;

    if (rb_train_evaluates(train)) {
        err = rb_evaluate(train->model, train->active, train->stop, &evaluation, &why);
        if (err)
            return rb_train_interrupted(train, err, &why);
        rb_tell_owed(train->reports, train->active->rank, train->model, &evaluation);
    }
    rb_saves_periodically(&train->saves, train->active->rank);
    if (gives_up(train))
        return give_up(train);
    return rb_train_level(train) >= train->model->message->steps ? RB_TRAIN_DONE
                                                                 : RB_TRAIN_TRAINING;
}

/* After a committed or skipped step: what is due at this level, and where to go from here. */
static enum rb_train_phase after_step(struct rb_train *train, const struct rb_step_result *result,
                                      uint64_t started)
{
    struct rb_evaluation evaluation;
    struct rb_why why = {0};
    bool evaluated = rb_train_evaluates(train);
    int err = 0;

    rb_fault("worker.committed");
    rb_configuration_free(RB_TAKE(train->retired));
    if (evaluated)
        err = rb_evaluate(train->model, train->active, train->stop, &evaluation, &why);
    tell_row(train, result, evaluated && !err ? &evaluation : NULL, err, started);
    if (result->decision.flip) /* newcomers may go on without this worker, and have no rows of the
                                * past */
        rb_reports_hurry(train->reports);
    rb_train_stand(train, RB_TRAIN_TRAINING);
    if (!err && result->decision.collector >= 0)
        err = rb_saves_collect(&train->saves, train->active, (uint32_t)result->decision.collector,
                               &why);
    if (err)
        return rb_train_interrupted(train, err, &why);
    rb_saves_periodically(&train->saves, train->active->rank);
    if (gives_up(train))
        return give_up(train);
    if (rb_train_level(train) >= train->model->message->steps)
        return RB_TRAIN_DONE;
    if (!result->decision.flip) {
        err = rb_configuration_arrive(train->active, rb_train_level(train), &why);
        return err ? rb_train_interrupted(train, err, &why) : RB_TRAIN_TRAINING;
    }
    if (!train->next || train->next->number != result->decision.number)
        return RB_TRAIN_LEFT;
    return train->next->roster ? RB_TRAIN_FLIPPING : RB_TRAIN_OPENING;
}

static void note_taken(struct rb_train *train, const struct rb_step_result *result,
                       uint64_t step_ns)
{
    train->taken += result->taken;
    if (result->taken)
        train->pace = rb_taking_pace(train->pace, result->taking_ns, step_ns);
}

/* A GPU that has to be told of each kernel computes the same, but more slowly. */
static void say_slow(struct rb_train *train)
{
    const char *why = rb_program_refused(train->model->runner->program);

    if (!why)
        why = rb_flights_refused(train->model);
    if (why && !train->slow_said)
        rb_log(RB_LOG_WARN, "kernels are launched one by one: %s", why);
    train->slow_said |= why != NULL;
}

enum rb_train_phase rb_train_training(struct rb_train *train)
{
    struct rb_step step = {
        .model = train->model,
        .configuration = train->active,
        .stop = train->stop,
        .ready = say_ready,
        .voted = heard_all,
        .changing = wait_copied,
        .reads_all = reads_all,
        .owner = train,
    };
    enum rb_train_phase phase = RB_TRAIN_TRAINING;
    struct rb_why unsettled, lost = {0};
    int err = rb_configuration_inherit(train->active, train->model->device, &train->past, &lost);

    rb_train_forget_circle(train);
    if (err)
        return rb_train_interrupted(train, err, &lost);

    /* Newcomers may still lack the last entry.  Until they have it, nothing is gained by computing
     * on a core that the feed needs.  If the feed fails, the failure shows again where the step
     * needs the links. */
    rb_configuration_settle(train->active, &unsettled);
    if (train->active->recovers)
        phase = make_up(train);
    while (phase == RB_TRAIN_TRAINING) {
        uint64_t started = rb_clock_ns();
        struct rb_step_result result = {0};
        struct rb_why why = {0};

        rb_saves_serve(&train->saves, true);
        err = rb_step_run(&step, &result, &why);
        if (result.committed)
            rb_train_tell_entered(train);
        if (err && result.committed)
            tell_row(train, &result, NULL, true, started);
        note_taken(train, &result, rb_clock_ns() - started);
        say_slow(train);
        phase = err ? rb_train_interrupted(train, err, &why) : after_step(train, &result, started);
    }
    return phase;
}
