/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread's side of the mailbox. */
#include "worker/control/mailbox_inside.h"

#include "worker/control/tell.h"

#include <stdio.h>
#include <stdlib.h>

static bool can_open(const struct rb_mailbox *mailbox)
{
    return mailbox->prepared && mailbox->prepared->number == mailbox->go;
}

/* A configuration with a roster is taken at once: a newcomer follows it, others have no use for
 * it. */
static bool can_take(const struct rb_mailbox *mailbox)
{
    return mailbox->prepared && (mailbox->prepared->roster || can_open(mailbox));
}

enum rb_event rb_mailbox_wait(struct rb_mailbox *mailbox, bool (*can_save)(void *owner),
                              void *owner)
{
    enum rb_event event;

    lock(mailbox);
    for (;;) {
        if (atomic_load(&mailbox->stop)) {
            event = RB_EVENT_LEAVE;
            break;
        }
        if (can_take(mailbox)) {
            event = RB_EVENT_OPEN;
            break;
        }
        if (mailbox->saves && can_save(owner)) {
            event = RB_EVENT_SAVE;
            break;
        }
        if (mailbox->freezes >= 0 && mailbox->freezes == mailbox->status.level) {
            mailbox->freezes = -1;
            event = RB_EVENT_FREEZE;
            break;
        }
        pthread_cond_wait(&mailbox->changed, &mailbox->lock);
    }
    pthread_mutex_unlock(&mailbox->lock);
    return event;
}

void rb_mailbox_kick(struct rb_mailbox *mailbox)
{
    lock(mailbox);
    unlock_changed(mailbox);
}

struct rb_configuration *rb_mailbox_take(struct rb_mailbox *mailbox)
{
    struct rb_configuration *taken = NULL;

    lock(mailbox);
    if (can_take(mailbox))
        taken = RB_TAKE(mailbox->prepared);
    unlock(mailbox);
    return taken;
}

/* The first member whose link has ended; -1: none. */
static int lost_member(const struct rb_configuration *configuration)
{
    for (uint32_t r = 0; r < configuration->size; r++)
        if (r != configuration->rank && rb_coll_lost(configuration->coll, (int)r))
            return (int)r;
    return -1;
}

static void report_loss(struct rb_mailbox *mailbox, uint32_t number, int rank)
{
    char reason[64];

    snprintf(reason, sizeof reason, "the link to rank %d ended", rank);
    rb_tell_unready(mailbox->reports, number, reason);
}

void rb_mailbox_ready(struct rb_mailbox *mailbox, struct rb_configuration **next,
                      struct rb_vote_ready *ret_ready)
{
    struct rb_configuration *dropped = NULL;
    struct rb_vote_ready ready = {0};
    int lost = -1;

    lock(mailbox);
    mailbox->voting = true;
    if (*next && ((*next)->number != mailbox->go || is_abandoned(mailbox, (*next)->number)))
        dropped = RB_TAKE(*next);
    if (!*next && can_open(mailbox))
        *next = RB_TAKE(mailbox->prepared);
    if (*next)
        ready = (struct rb_vote_ready){(*next)->number, true, (*next)->digest};
    else if (mailbox->go > mailbox->status.active && mailbox->go > mailbox->configured &&
             !is_abandoned(mailbox, mailbox->go))
        ready = (struct rb_vote_ready){.number = mailbox->go}; /* the others go on without this
                                                                * worker */
    unlock(mailbox);
    rb_configuration_free(dropped);
    if (*next)
        lost = lost_member(*next);
    if (lost >= 0) {
        report_loss(mailbox, (*next)->number, lost);
        rb_configuration_free(*next);
        *next = NULL;
        ready = (struct rb_vote_ready){0};
    }
    *ret_ready = ready;
}

void rb_mailbox_voted(struct rb_mailbox *mailbox)
{
    lock(mailbox);
    mailbox->voting = false;
    if (mailbox->group && atomic_load(&mailbox->stop))
        rb_coll_cancel(mailbox->group);
    unlock(mailbox);
}

void rb_mailbox_enter(struct rb_mailbox *mailbox, const struct rb_configuration *configuration,
                      enum rb_group_use use)
{
    lock(mailbox);
    mailbox->group = configuration ? configuration->coll : NULL;
    mailbox->group_number = configuration ? configuration->number : 0;
    mailbox->group_use = use;
    if (mailbox->group && use == RB_GROUP_TRAINING && mailbox->wanted &&
        mailbox->wanted->number == mailbox->group_number) {
        rb__configure__free_unpacked(mailbox->wanted, NULL);
        mailbox->wanted = NULL;
    }
    if (mailbox->group &&
        (atomic_load(&mailbox->stop) ||
         (use != RB_GROUP_TRAINING && is_abandoned(mailbox, mailbox->group_number)) ||
         (use == RB_GROUP_FOLLOWING && mailbox->configured > mailbox->group_number &&
          mailbox->group_number != mailbox->go)))
        rb_coll_cancel(mailbox->group);
    leave_for_recovery(mailbox);
    unlock_changed(mailbox);
}

bool rb_mailbox_has_save(struct rb_mailbox *mailbox)
{
    bool has;

    lock(mailbox);
    has = mailbox->saves != NULL;
    unlock(mailbox);
    return has;
}

bool rb_mailbox_take_save(struct rb_mailbox *mailbox, struct rb_save_order *ret_save)
{
    struct save *save;

    lock(mailbox);
    save = mailbox->saves;
    if (save) {
        mailbox->saves = save->next;
        mailbox->n_saves--;
        *ret_save = save->order;
    }
    unlock(mailbox);
    free(save);
    return save != NULL;
}

void rb_mailbox_copy_settings(struct rb_mailbox *mailbox, struct rb_settings *ret_settings)
{
    lock(mailbox);
    *ret_settings = mailbox->settings;
    ret_settings->checkpoint_path = copy_of(mailbox->settings.checkpoint_path);
    ret_settings->final_folder = copy_of(mailbox->settings.final_folder);
    unlock(mailbox);
}

struct rb_model *rb_mailbox_model(struct rb_mailbox *mailbox)
{
    struct rb_model *model;

    lock(mailbox);
    model = mailbox->model;
    unlock(mailbox);
    return model;
}

void rb_mailbox_stand(struct rb_mailbox *mailbox, const struct rb_status *status)
{
    lock(mailbox);
    mailbox->status = (struct rb_status){
        .ready = mailbox->status.ready,
        .active = status->active,
        .said = status->said,
        .level = status->level,
        .frozen = status->frozen,
        .done = status->done,
    };
    unlock(mailbox);
}

const atomic_bool *rb_mailbox_stop(const struct rb_mailbox *mailbox)
{
    return &mailbox->stop;
}

const char *rb_mailbox_leave_folder(const struct rb_mailbox *mailbox, int *ret_code)
{
    *ret_code = mailbox->leave_code;
    return mailbox->leave_folder;
}

unsigned rb_mailbox_leaves(struct rb_mailbox *mailbox)
{
    unsigned leaves;

    lock(mailbox);
    leaves = mailbox->leaves;
    unlock(mailbox);
    return leaves;
}

bool rb_mailbox_stays(struct rb_mailbox *mailbox)
{
    bool stays;

    lock(mailbox);
    stays = mailbox->stays;
    if (stays) {
        mailbox->stays = false;
        free(RB_TAKE(mailbox->leave_folder));
        atomic_store(&mailbox->stop, false);
    }
    unlock_changed(mailbox);
    return stays;
}
