/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/train_inside.h"

#include "base/fault.h"
#include "base/log.h"
#include "worker/join/taking.h"

#include <time.h>

/* ---- Waiting: IDLE, FROZEN, LEFT, DONE --------------------------------------------------------*/

/* Outside of training: a configuration with a roster is for a newcomer to follow.  The member that
 * was to feed the newcomer no longer trains; closing the group tells the others so.  A member with
 * a part of a state enters a planned change only by a vote, in which leavers hand over their
 * parts. */
static enum rb_train_phase begin_next(struct rb_train *train)
{
    const struct rb_configuration *next = train->next;
    bool stays =
        rb_train_level(train) >= 0 && !rb_state_whole(&train->model->state) && !next->recovers;

    if (!next->roster && !stays)
        return RB_TRAIN_OPENING;
    if (rb_configuration_follows(next) && rb_train_level(train) < 0)
        return RB_TRAIN_FOLLOWING;
    rb_tell_unready(train->reports, next->number, "this worker does not train any more");
    rb_configuration_free(RB_TAKE(train->next));
    return RB_TRAIN_IDLE;
}

static enum rb_train_phase wait_for_orders(struct rb_train *train, enum rb_train_phase phase)
{
    rb_train_stand(train, phase);
    for (;;) {
        enum rb_train_phase begun = train->next ? begin_next(train) : RB_TRAIN_IDLE;

        if (begun != RB_TRAIN_IDLE)
            return begun;
        switch (rb_mailbox_wait(train->mailbox, rb_saves_ready, &train->saves)) {
        case RB_EVENT_LEAVE:
            return RB_TRAIN_LEAVING;
        case RB_EVENT_OPEN:
            train->next = rb_mailbox_take(train->mailbox);
            break;
        case RB_EVENT_SAVE:
            rb_saves_serve(&train->saves, false);
            break;
        case RB_EVENT_FREEZE: /* those that went on may be gone before anybody has heard so */
            if (phase == RB_TRAIN_LEFT)
                return rb_train_freeze(train,
                                       "it has left, and the members that went on do not answer");
            break;
        }
    }
}

static enum rb_train_phase idle(struct rb_train *train)
{
    return wait_for_orders(train, RB_TRAIN_IDLE);
}

static enum rb_train_phase frozen(struct rb_train *train)
{
    return wait_for_orders(train, RB_TRAIN_FROZEN);
}

static enum rb_train_phase left(struct rb_train *train)
{
    return wait_for_orders(train, RB_TRAIN_LEFT);
}

/* ---- Ends -----------------------------------------------------------------------------------*/

/* The last step is done: rank 0 saves, all linger for slower ranks.  To save a state in shards
 * takes all ranks, so a rank that is lost then counts as lost during training. */
static enum rb_train_phase done(struct rb_train *train)
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
        return rb_train_interrupted(train, err, &why);
    }
    if (final.error)
        rb_log(RB_LOG_ERROR, "%s", final.error);
    rb_tell_done(train->reports, rb_train_level(train), saves ? &final : NULL);
    rb_saved_done(&final);
    rb_settings_done(&settings);
    return wait_for_orders(train, RB_TRAIN_DONE);
}

/* Whatever this worker's rank was, nobody will come further in that configuration. */
static void tell_the_rest(struct rb_train *train)
{
    rb_tell_owed(train->reports, 0, train->model, NULL);
}

/* Nobody needs this process any more, but an agent must hear why. */
static enum rb_train_phase failed(struct rb_train *train)
{
    rb_train_stand(train, RB_TRAIN_FAILED);
    tell_the_rest(train);
    rb_control_wait_told(train->control);
    return RB_TRAIN_ENDED;
}

/* A worker that saves before it leaves may be the last to have the state: it keeps trying, and does
 * not end before an agent has heard where the state is.  Other saves that were asked for meanwhile
 * are answered, and such a save may go to where there is room.  Until the worker has saved, it may
 * be told to stay instead. */
static enum rb_train_phase leaving(struct rb_train *train)
{
    const struct timespec pause = {.tv_sec = 1};
    const char *folder = rb_mailbox_leave_folder(train->mailbox, &train->code);
    int err = RB_EIO;

    if (!folder)
        tell_the_rest(train);
    for (unsigned said = 0, asked; folder && err == RB_EIO; said = asked) {
        struct rb_saved saved;

        if (said) {
            nanosleep(&pause, NULL);
            rb_saves_serve(&train->saves, false);
        }
        if (rb_mailbox_stays(train->mailbox))
            return rb_train_stay(train);
        asked = rb_mailbox_leaves(train->mailbox);
        err = rb_saves_now(&train->saves, folder, &saved);
        if (err != RB_EIO)
            tell_the_rest(train);
        if (err != RB_EIO || said != asked)
            rb_saved_post(&saved, train->reports);
        rb_saved_done(&saved);
    }
    if (folder)
        rb_control_wait_told(train->control);
    if (folder && !err)
        rb_saves_prune(&train->saves, folder);
    return RB_TRAIN_ENDED;
}

int rb_train_run(const struct rb_worker_options *options, struct rb_mailbox *mailbox,
                 struct rb_reports *reports, struct rb_control *control)
{
    static enum rb_train_phase (*const run[])(struct rb_train *) = {
        [RB_TRAIN_IDLE] = idle,
        [RB_TRAIN_OPENING] = rb_train_opening,
        [RB_TRAIN_FOLLOWING] = rb_train_following,
        [RB_TRAIN_FLIPPING] = rb_train_flipping,
        [RB_TRAIN_TRAINING] = rb_train_training,
        [RB_TRAIN_FROZEN] = frozen,
        [RB_TRAIN_LEFT] = left,
        [RB_TRAIN_DONE] = done,
        [RB_TRAIN_FAILED] = failed,
        [RB_TRAIN_LEAVING] = leaving,
    };
    struct rb_train train = {
        .mailbox = mailbox,
        .reports = reports,
        .control = control,
        .stop = rb_mailbox_stop(mailbox),
        .pace = RB_TAKING_LEAST,
        .saves = {.options = options, .mailbox = mailbox, .reports = reports},
    };

    for (enum rb_train_phase phase = RB_TRAIN_IDLE; phase != RB_TRAIN_ENDED;)
        phase = run[phase](&train);
    rb_saves_close(&train.saves);
    rb_train_leave_groups(&train);
    rb_train_forget_circle(&train);
    rb_configuration_free(train.next);
    return train.code;
}
