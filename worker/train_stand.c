/* SPDX-License-Identifier: Apache-2.0 */
/* Where the step thread stands, and what brings it to a stand: a lost peer, or an end. */
#include "worker/train_inside.h"

#include "base/fault.h"
#include "base/log.h"
#include "worker/stages/lap.h"

#include <inttypes.h>

void rb_train_enter_term(struct rb_train *train, uint32_t number)
{
    if (train->model)
        rb_window_enter(train->model->state.window, number,
                        number && rb_configuration_laps(train->active));
}

void rb_train_stand(struct rb_train *train, enum rb_train_phase phase)
{
    struct rb_status status = {
        .active = train->number,
        .said = train->said,
        .level = rb_train_level(train),
        .frozen = phase == RB_TRAIN_FROZEN,
        .done = phase == RB_TRAIN_DONE,
    };

    rb_train_enter_term(train, phase == RB_TRAIN_TRAINING ? train->number : 0);
    rb_mailbox_stand(train->mailbox, &status);
}

void rb_train_leave_groups(struct rb_train *train)
{
    rb_mailbox_enter(train->mailbox, NULL, RB_GROUP_TRAINING);
    rb_configuration_free(RB_TAKE(train->active));
    rb_configuration_free(RB_TAKE(train->retired));
}

void rb_train_forget_circle(struct rb_train *train)
{
    rb_circle_leave(train->past.circle);
    train->past = (struct rb_circle_past){0};
}

/* The survivors may make their circle out of this one. */
static void keep_circle(struct rb_train *train)
{
    struct rb_configuration *active = train->active;

    rb_train_forget_circle(train);
    if (!active->circle)
        return;
    rb_circle_stop(active->circle);
    train->past = (struct rb_circle_past){RB_TAKE(active->circle), active->number,
                                          (int)active->rank, (int)active->size};
}

static bool is_data_error(int err)
{
    return err == RB_EINVAL || err == RB_ENOTFOUND || err == RB_EREFUSED ||
           err == RB_EUNSUPPORTED || err == RB_ELOST || err == RB_EUNREADABLE;
}

enum rb_train_phase rb_train_fail(struct rb_train *train, int err, const char *reason)
{
    rb_log(RB_LOG_ERROR, "%s", reason);
    rb_tell_failed(train->reports, err, reason);
    train->code = is_data_error(err) ? RB_EXIT_DATA : RB_EXIT_INTERNAL;
    return RB_TRAIN_FAILED;
}

enum rb_train_phase rb_train_freeze(struct rb_train *train, const char *reason)
{
    rb_log(RB_LOG_WARN, "frozen at level %" PRId64 ": %s", rb_train_level(train), reason);
    rb_tell_frozen(train->reports, train->active, rb_train_level(train), reason);
    rb_fault_rank((int)train->active->rank); /* whatever is being prepared by now */
    rb_fault("worker.frozen");
    keep_circle(train);
    rb_train_leave_groups(train);
    return RB_TRAIN_FROZEN;
}

enum rb_train_phase rb_train_interrupted(struct rb_train *train, int err, struct rb_why *why)
{
    enum rb_train_phase phase;

    rb_train_enter_term(train, 0);
    if (atomic_load(train->stop))
        return RB_TRAIN_LEAVING;
    if (err == RB_EPEER || err == RB_ECANCELED)
        return rb_train_freeze(train, why->text);
    phase = rb_train_fail(train, err, why->text);
    rb_train_leave_groups(train);
    return phase;
}

enum rb_train_phase rb_train_stay(struct rb_train *train)
{
    rb_log(RB_LOG_INFO, "it is to stay: level %" PRId64 " was not saved", rb_train_level(train));
    return train->active
               ? rb_train_freeze(train, "it was to save its state and leave, and is to stay now")
               : RB_TRAIN_FROZEN; /* the agent was told so already */
}
