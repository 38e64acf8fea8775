/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/train.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "worker/checkpoint/saves.h"
#include "worker/control/tell.h"
#include "worker/evaluate.h"
#include "worker/join/follow.h"
#include "worker/join/opening.h"
#include "worker/join/taking.h"
#include "worker/lap.h"
#include "worker/step.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WAITS_EVERY = 32 }; /* steps */

enum phase {
    IDLE,
    OPENING,
    FOLLOWING,
    FLIPPING,
    TRAINING,
    FROZEN,
    LEFT,
    DONE,
    FAILED,
    LEAVING,
    ENDED
};

struct train {
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    struct rb_control *control;
    const atomic_bool *stop;
    struct rb_model *model; /* NULL before the first configuration */
    struct rb_saves saves;
    struct rb_configuration *active;  /* opened, or being opened */
    struct rb_configuration *retired; /* before it: kept until the first commit of `active`, so that
                                         nobody misses the end of its last vote */
    struct rb_configuration *next;    /* told to go; said so in votes */
    uint32_t number;                  /* of the newest configuration entered */
    uint32_t said;                    /* the newest of them that others were told of */
    struct rb_entrance entrance;      /* into `active` */
    struct rb_circle_past past;       /* the circle that a death has stopped, if there was one */
    size_t pace;                      /* bytes to take behind a step */
    uint64_t taken;                   /* of the configuration to come, by now */
    bool slow_said;
    int code;
};

static int64_t level_of(const struct train *train)
{
    return train->model ? train->model->state.level : -1;
}

/* What is done to the state from now on: steps of `number`, or (0) anything. */
static void enter_term(struct train *train, uint32_t number)
{
    if (train->model)
        rb_window_enter(train->model->state.window, number,
                        number && rb_lap_runs(train->model, train->active));
}

static void stand(struct train *train, enum phase phase)
{
    struct rb_status status = {
        .active = train->number,
        .said = train->said,
        .level = level_of(train),
        .frozen = phase == FROZEN,
        .done = phase == DONE,
    };

    enter_term(train, phase == TRAINING ? train->number : 0);
    rb_mailbox_stand(train->mailbox, &status);
}

static void leave_groups(struct train *train)
{
    rb_mailbox_enter(train->mailbox, NULL, RB_GROUP_TRAINING);
    rb_configuration_free(RB_TAKE(train->active));
    rb_configuration_free(RB_TAKE(train->retired));
}

static void forget_circle(struct train *train)
{
    rb_circle_leave(train->past.circle);
    train->past = (struct rb_circle_past){0};
}

/* Those who are left may make theirs out of it. */
static void keep_circle(struct train *train)
{
    struct rb_configuration *active = train->active;

    forget_circle(train);
    if (!active->circle)
        return;
    rb_circle_stop(active->circle);
    train->past = (struct rb_circle_past){RB_TAKE(active->circle), active->number,
                                          (int)active->rank, (int)active->size};
}

/* ---- Ways out -------------------------------------------------------------------------------*/

static bool is_data_error(int err)
{
    return err == RB_EINVAL || err == RB_ENOTFOUND || err == RB_EREFUSED ||
           err == RB_EUNSUPPORTED || err == RB_ELOST;
}

static enum phase fail(struct train *train, int err, const char *reason)
{
    rb_log(RB_LOG_ERROR, "%s", reason);
    rb_tell_failed(train->reports, reason, err == RB_ELOST);
    train->code = is_data_error(err) ? RB_EXIT_DATA : RB_EXIT_INTERNAL;
    return FAILED;
}

/* An attempt or an opening ended early: a lost peer freezes, the rest is an end. */
static enum phase interrupted(struct train *train, int err, struct rb_why *why)
{
    enum phase phase = FROZEN;

    enter_term(train, 0);
    if (atomic_load(train->stop))
        return LEAVING;
    if (err == RB_EPEER || err == RB_ECANCELED) {
        rb_log(RB_LOG_WARN, "frozen at level %" PRId64 ": %s", level_of(train), why->text);
        rb_tell_frozen(train->reports, train->active, level_of(train), why->text);
        rb_fault_rank((int)train->active->rank); /* whatever is being prepared by now */
        rb_fault("worker.frozen");
        keep_circle(train);
    } else {
        phase = fail(train, err, why->text);
    }
    leave_groups(train);
    return phase;
}

/* ---- Waiting: IDLE, FROZEN, LEFT, DONE --------------------------------------------------------*/

/* Outside of training: a configuration with a roster is for a newcomer to follow.  Whoever was to
 * feed it trains no more, and closing its group tells the others so.  A part of a state goes into a
 * planned change by a vote alone, in which those who leave hand over their parts. */
static enum phase begin_next(struct train *train)
{
    const struct rb_configuration *next = train->next;
    bool stays = level_of(train) >= 0 && !rb_state_whole(&train->model->state) && !next->recovers;

    if (!next->roster && !stays)
        return OPENING;
    if (rb_configuration_follows(next) && level_of(train) < 0)
        return FOLLOWING;
    rb_tell_unready(train->reports, next->number, "this worker does not train any more");
    rb_configuration_free(RB_TAKE(train->next));
    return IDLE;
}

static enum phase wait_for_orders(struct train *train, enum phase phase)
{
    stand(train, phase);
    for (;;) {
        enum phase begun = train->next ? begin_next(train) : IDLE;

        if (begun != IDLE)
            return begun;
        switch (rb_mailbox_wait(train->mailbox, rb_saves_ready, &train->saves)) {
        case RB_EVENT_LEAVE:
            return LEAVING;
        case RB_EVENT_OPEN:
            train->next = rb_mailbox_take(train->mailbox);
            break;
        case RB_EVENT_SAVE:
            rb_saves_serve(&train->saves, false);
            break;
        }
    }
}

static enum phase idle(struct train *train)
{
    return wait_for_orders(train, IDLE);
}

static enum phase frozen(struct train *train)
{
    return wait_for_orders(train, FROZEN);
}

static enum phase left(struct train *train)
{
    return wait_for_orders(train, LEFT);
}

/* ---- Opening --------------------------------------------------------------------------------*/

static void advance_configuration(struct train *train)
{
    rb_mailbox_enter(train->mailbox, NULL, RB_GROUP_TRAINING);
    rb_configuration_free(RB_TAKE(train->retired));
    train->retired = RB_TAKE(train->active);
    train->active = RB_TAKE(train->next);
    train->taken = 0;
    rb_fault_rank((int)train->active->rank);
}

/* There is a model once a configuration was prepared. */
static int start_saves(struct train *train, struct rb_why *why)
{
    train->model = rb_mailbox_model(train->mailbox);
    return rb_saves_open(&train->saves, train->model, why);
}

/* Once: with that the configuration before it is over, and who is in no other is dismissed. */
static void tell_entered(struct train *train)
{
    if (train->said == train->number)
        return;
    train->said = train->number;
    rb_tell_flipped(train->reports, train->active, &train->entrance);
}

/* The active configuration is entered.  Newcomers that were fed may lack the end of it still, and
 * what they are to hold may be with one who stays and with leavers alone: who dies now is survived
 * as long as nobody has left.  So this is said when all are known to be in: behind the first step,
 * for which all have voted. */
static enum phase entered(struct train *train, uint64_t bytes)
{
    const struct rb_roster *roster = train->active->roster;

    rb_fault("worker.entered");
    rb_mailbox_enter(train->mailbox, train->active, RB_GROUP_TRAINING);
    train->number = train->active->number;
    train->entrance = (struct rb_entrance){level_of(train), rb_clock_unix_ms(), bytes};
    if (!roster || !roster->n_newcomers)
        tell_entered(train);
    stand(train, TRAINING);
    rb_log(RB_LOG_INFO,
           "configuration %u: rank %u of %u, level %" PRId64 ", %" PRIu64 " bytes moved",
           train->number, train->active->rank, train->active->size, level_of(train), bytes);
    return level_of(train) >= train->model->message->steps ? DONE : TRAINING;
}

static enum phase opening(struct train *train)
{
    struct rb_why why = {0};
    uint64_t bytes = 0;
    int64_t before = level_of(train);
    int err;

    advance_configuration(train);
    rb_mailbox_enter(train->mailbox, train->active, RB_GROUP_OPENING);
    enter_term(train, 0);
    err = start_saves(train, &why);
    if (!err) {
        rb_saves_wait_copied(&train->saves);
        err = rb_opening_run(train->model, train->active, &bytes, &why);
        if (before >= 0 && level_of(train) > before)
            rb_tell_told(train->reports, train->active, train->model, before);
    }
    return err ? interrupted(train, err, &why) : entered(train, bytes);
}

/* Those who trained on have the state: nothing to wait for. */
static enum phase flipping(struct train *train)
{
    const struct rb_configuration *next = train->next;
    uint64_t taken = train->taken;
    struct rb_why why = {0};
    int err = rb_model_shift(train->model,
                             next->placement.holds + next->rank * next->placement.blocks, &why);

    advance_configuration(train);
    return err ? interrupted(train, err, &why) : entered(train, taken);
}

/* A newcomer follows from before it is told to go until the vote of the others flips.  Giving up
 * costs nobody anything: it is as it was. */
static enum phase following(struct train *train)
{
    struct rb_why why = {0};
    uint64_t bytes = 0;
    int err;

    leave_groups(train);
    rb_mailbox_enter(train->mailbox, train->next, RB_GROUP_FOLLOWING);
    err = start_saves(train, &why);
    if (!err)
        err = rb_follow_run(train->model, train->next, &bytes, &why);
    if (!err) {
        train->active = RB_TAKE(train->next);
        return entered(train, bytes);
    }
    rb_log(RB_LOG_WARN, "%s", why.text);
    if (err != RB_ECANCELED)
        rb_tell_unready(train->reports, train->next->number, why.text);
    rb_mailbox_enter(train->mailbox, NULL, RB_GROUP_TRAINING);
    rb_configuration_free(RB_TAKE(train->next));
    return atomic_load(train->stop) ? LEAVING : IDLE;
}

/* ---- Training -------------------------------------------------------------------------------*/

/* Where steps are shorter than the way to a newcomer and back it is never level when it is asked.
 * So every so many steps there is a pause, at the same ones everywhere; a change that lacks blocks
 * still waits for nobody. */
static bool feeds_level(const struct train *train, struct rb_feed *feed)
{
    int64_t level = level_of(train);

    return level % WAITS_EVERY ? rb_feed_level(feed, level)
                               : rb_feed_wait_level(feed, level, train->stop);
}

/* Have we what we are to hold there?  Have those that we feed the present level?  Then the entry of
 * this step is all that they lack. */
static bool is_vouched_for(const struct train *train)
{
    const struct rb_configuration *next = train->next;

    if (rb_configuration_follows(next))
        return false; /* we have come to a state meanwhile: it will be abandoned */
    return rb_taking_complete(&train->model->state, next) &&
           (!next->feed || feeds_level(train, next->feed));
}

static void say_ready(struct rb_vote_ready *ret_ready, void *owner)
{
    struct train *train = owner;

    rb_mailbox_ready(train->mailbox, &train->next, ret_ready);
    if (train->next && !is_vouched_for(train))
        *ret_ready = (struct rb_vote_ready){0};
    rb_taking_say(train->model, train->active, train->next, train->pace, ret_ready);
    ret_ready->collects =
        train->active->placement.sharded &&
        rb_saves_want(&train->saves, train->active->rank, rb_lap_next(train->model, train->active));
}

static void heard_all(void *owner)
{
    const struct train *train = owner;

    rb_mailbox_voted(train->mailbox);
}

/* The update of a whole state copies what a save still lacks itself.  Where it is in shards weights
 * change that are not this rank's too. */
static void wait_copied(void *owner)
{
    struct train *train = owner;

    if (!rb_state_whole(&train->model->state))
        rb_saves_wait_copied(&train->saves);
}

static bool evaluates_now(const struct train *train)
{
    const Rb__Model *model = train->model->message;

    return train->model->n_chunks && model->eval_every > 0 &&
           (level_of(train) % model->eval_every == 0 || level_of(train) == model->steps);
}

/* Evaluation does, and whoever saves the end. */
static bool reads_all(void *owner)
{
    const struct train *train = owner;

    return evaluates_now(train) || level_of(train) >= train->model->message->steps;
}

/* Too many steps in a row without usable gradients: every rank counts the same and fails alike. */
static bool gives_up(const struct train *train)
{
    const Rb__Model *model = train->model->message;
    int64_t limit = model->stop_on_non_finite ? 1 : model->non_finite_limit;

    return train->model->state.not_finite && train->model->state.not_finite >= limit;
}

static enum phase give_up(struct train *train)
{
    char reason[128];
    enum phase phase;

    snprintf(reason, sizeof reason,
             "step %" PRId64 ": gradients or loss were not finite in %" PRId64 " steps in a row",
             level_of(train), train->model->state.not_finite);
    phase = fail(train, RB_EINVAL, reason);
    leave_groups(train);
    return phase;
}

static void tell_row(struct train *train, const struct rb_step_result *result,
                     const struct rb_evaluation *evaluation, uint64_t started)
{
    rb_tell_row(train->reports, train->active, train->model, result, evaluation,
                (double)(rb_clock_ns() - started) / 1e6);
    rb_fault("worker.row");
}

/* After a committed or skipped step: what is due at this level, and where to go from here. */
static enum phase after_step(struct train *train, const struct rb_step_result *result,
                             uint64_t started)
{
    struct rb_evaluation evaluation;
    struct rb_why why = {0};
    bool evaluated = evaluates_now(train);
    int err = 0;

    rb_fault("worker.committed");
    rb_configuration_free(RB_TAKE(train->retired));
    if (evaluated)
        err = rb_evaluate(train->model, train->active, train->stop, &evaluation, &why);
    tell_row(train, result, evaluated && !err ? &evaluation : NULL, started);
    stand(train, TRAINING);
    if (!err && result->decision.collector >= 0)
        err = rb_saves_collect(&train->saves, train->active, (uint32_t)result->decision.collector,
                               &why);
    if (err)
        return interrupted(train, err, &why);
    rb_saves_periodically(&train->saves, train->active->rank);
    if (gives_up(train))
        return give_up(train);
    if (level_of(train) >= train->model->message->steps)
        return DONE;
    if (!result->decision.flip) {
        err = rb_configuration_arrive(train->active, level_of(train), &why);
        return err ? interrupted(train, err, &why) : TRAINING;
    }
    if (!train->next || train->next->number != result->decision.number)
        return LEFT;
    return train->next->roster ? FLIPPING : OPENING;
}

static void note_taken(struct train *train, const struct rb_step_result *result, uint64_t step_ns)
{
    train->taken += result->taken;
    if (result->taken)
        train->pace = rb_taking_pace(train->pace, result->taking_ns, step_ns);
}

/* A GPU that has to be told of each kernel computes the same, more slowly. */
static void say_slow(struct train *train)
{
    const char *why = rb_program_refused(train->model->runner->program);

    if (why && !train->slow_said)
        rb_log(RB_LOG_WARN, "kernels are launched one by one: %s", why);
    train->slow_said |= why != NULL;
}

static enum phase training(struct train *train)
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
    enum phase phase = TRAINING;
    struct rb_why unsettled, lost = {0};
    int err = rb_configuration_inherit(train->active, train->model->device, &train->past, &lost);

    forget_circle(train);
    if (err)
        return interrupted(train, err, &lost);

    /* Newcomers may lack the last entry still.  Until they have it nothing is gained by computing
     * on a core that the feed needs.  Should it fail, it shows again where the step needs the
     * links. */
    rb_configuration_settle(train->active, &unsettled);
    while (phase == TRAINING) {
        uint64_t started = rb_clock_ns();
        struct rb_step_result result = {0};
        struct rb_why why = {0};

        rb_saves_serve(&train->saves, true);
        err = rb_step_run(&step, &result, &why);
        if (result.committed)
            tell_entered(train);
        if (err && result.committed)
            tell_row(train, &result, NULL, started);
        note_taken(train, &result, rb_clock_ns() - started);
        say_slow(train);
        phase = err ? interrupted(train, err, &why) : after_step(train, &result, started);
    }
    return phase;
}

/* ---- Ends -----------------------------------------------------------------------------------*/

/* The last step is behind us: rank 0 saves, all linger for those who are slower.  A state in shards
 * needs them all to be saved, and whoever is lost then is one that is lost while it trains. */
static enum phase done(struct train *train)
{
    struct rb_settings settings;
    struct rb_saved final = {0};
    struct rb_why why = {0};
    bool saves;
    int err = 0;

    rb_configuration_free(RB_TAKE(train->next));
    rb_fault("worker.done");
    rb_mailbox_copy_settings(train->mailbox, &settings);
    saves = train->active->rank == 0 && settings.final_folder;
    if (train->active->placement.sharded)
        err = rb_saves_last(&train->saves, train->active, settings.final_folder, &final, &why);
    else if (saves)
        rb_saves_now(&train->saves, settings.final_folder, &final);
    if (err) {
        rb_settings_done(&settings);
        return interrupted(train, err, &why);
    }
    if (final.error)
        rb_log(RB_LOG_ERROR, "%s", final.error);
    rb_tell_done(train->reports, level_of(train), saves ? &final : NULL);
    rb_saved_done(&final);
    rb_settings_done(&settings);
    return wait_for_orders(train, DONE);
}

/* Nobody needs this process any more, but somebody must hear why. */
static enum phase failed(struct train *train)
{
    stand(train, FAILED);
    rb_control_wait_told(train->control);
    return ENDED;
}

static enum phase leaving(struct train *train)
{
    const char *folder = rb_mailbox_leave_folder(train->mailbox, &train->code);
    struct rb_saved saved;

    if (folder) {
        rb_saves_now(&train->saves, folder, &saved);
        rb_saved_post(&saved, train->reports);
        rb_saved_done(&saved);
    }
    return ENDED;
}

int rb_train_run(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                 struct rb_reports *reports, struct rb_control *control)
{
    static enum phase (*const run[])(struct train *) = {
        [IDLE] = idle,         [OPENING] = opening, [FOLLOWING] = following, [FLIPPING] = flipping,
        [TRAINING] = training, [FROZEN] = frozen,   [LEFT] = left,           [DONE] = done,
        [FAILED] = failed,     [LEAVING] = leaving,
    };
    struct train train = {
        .mailbox = mailbox,
        .reports = reports,
        .control = control,
        .stop = rb_mailbox_stop(mailbox),
        .pace = RB_TAKING_LEAST,
        .saves = {.options = options, .mailbox = mailbox, .reports = reports},
    };

    for (enum phase phase = IDLE; phase != ENDED;)
        phase = run[phase](&train);
    rb_saves_close(&train.saves);
    leave_groups(&train);
    forget_circle(&train);
    rb_configuration_free(train.next);
    return train.code;
}
