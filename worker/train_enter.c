/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread's ways into a configuration. */
#include "worker/train_inside.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "worker/join/follow.h"
#include "worker/join/opening.h"

#include <inttypes.h>

static void advance_configuration(struct rb_train *train)
{
    rb_mailbox_enter(train->mailbox, NULL, RB_GROUP_TRAINING);
    rb_configuration_free(RB_TAKE(train->retired));
    train->retired = RB_TAKE(train->active);
    train->active = RB_TAKE(train->next);
    train->taken = 0;
    rb_fault_rank((int)train->active->rank);
}

/* There is a model once a configuration was prepared. */
static int start_saves(struct rb_train *train, struct rb_why *why)
{
    train->model = rb_mailbox_model(train->mailbox);
    return rb_saves_open(&train->saves, train->model, why);
}

void rb_train_tell_entered(struct rb_train *train)
{
    if (train->said == train->number)
        return;
    train->said = train->number;
    rb_tell_flipped(train->reports, train->active, &train->entrance);
}

/* The gathered state stays as it is until it is saved, or until those who gave it go on with it.
 * Like a frozen worker, this one waits for orders, but nobody is lost.  Saves that waited for the
 * whole state in one place are served here. */
static enum rb_train_phase begin_to_stand(struct rb_train *train)
{
    rb_fault("worker.stands");
    rb_saves_serve(&train->saves, false);
    return RB_TRAIN_FROZEN;
}

/* The active configuration is entered.  Newcomers that were fed may still lack the end of the feed,
 * and the blocks that they are to hold may be only with one member that stays and with leavers: a
 * death now is survived as long as no leaver is gone.  So the entry is reported when all are known
 * to be in: after the first step, for which all have voted. */
static enum rb_train_phase entered(struct rb_train *train, uint64_t bytes)
{
    const struct rb_roster *roster = train->active->roster;
    struct rb_why why = {0};
    bool over, stands;
    int err = rb_model_use(train->model, train->active->plan->recomputes, &why);

    if (err)
        return rb_train_interrupted(train, err, &why);
    rb_fault("worker.entered");
    rb_mailbox_enter(train->mailbox, train->active, RB_GROUP_TRAINING);
    train->number = train->active->number;
    over = rb_train_level(train) >= train->model->message->steps && !train->active->recovers;
    stands = train->active->stands && !over;
    train->entrance =
        (struct rb_entrance){rb_train_level(train), rb_clock_unix_ms(), bytes, stands};
    if (stands || !roster || !roster->n_newcomers)
        rb_train_tell_entered(train);
    rb_train_stand(train, stands ? RB_TRAIN_FROZEN : RB_TRAIN_TRAINING);
    rb_log(RB_LOG_INFO,
           "configuration %u: rank %u of %u, level %" PRId64 ", %" PRIu64 " bytes moved%s",
           train->number, train->active->rank, train->active->size, rb_train_level(train), bytes,
           stands ? "; it stands, to be saved" : "");
    if (stands)
        return begin_to_stand(train);
    return over ? RB_TRAIN_DONE
                : RB_TRAIN_TRAINING; /* where what a death has interrupted is made up for first */
}

enum rb_train_phase rb_train_opening(struct rb_train *train)
{
    struct rb_why why = {0};
    uint64_t bytes = 0;
    int64_t before = rb_train_level(train);
    int err;

    advance_configuration(train);
    rb_mailbox_enter(train->mailbox, train->active, RB_GROUP_OPENING);
    rb_train_enter_term(train, 0);
    err = start_saves(train, &why);
    if (!err) /* what is given back makes room for blocks */
        err = rb_model_use(train->model, train->active->plan->recomputes, &why);
    if (!err) {
        rb_saves_wait_copied(&train->saves);
        err = rb_opening_run(train->model, train->active, &bytes, &why);
        if (before >= 0 && rb_train_level(train) > before)
            rb_tell_told(train->reports, train->active, train->model, before,
                         train->active->recovers && rb_train_evaluates(train));
    }
    return err ? rb_train_interrupted(train, err, &why) : entered(train, bytes);
}

/* Workers that trained on have the state: there is nothing to wait for. */
enum rb_train_phase rb_train_flipping(struct rb_train *train)
{
    const struct rb_configuration *next = train->next;
    uint64_t taken = train->taken;
    struct rb_why why = {0};
    int err = rb_model_shift(train->model,
                             next->placement.holds + next->rank * next->placement.blocks, &why);

    advance_configuration(train);
    return err ? rb_train_interrupted(train, err, &why) : entered(train, taken);
}

/* A newcomer follows from before it is told to go until the vote of the others flips.  If it gives
 * up, nobody loses anything: it is as it was. */
enum rb_train_phase rb_train_following(struct rb_train *train)
{
    struct rb_why why = {0};
    uint64_t bytes = 0;
    int err;

    rb_train_leave_groups(train);
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
    return atomic_load(train->stop) ? RB_TRAIN_LEAVING : RB_TRAIN_IDLE;
}
