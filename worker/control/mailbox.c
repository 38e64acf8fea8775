/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/control/mailbox.h"

#include "base/clock.h"
#include "base/fault.h"
#include "worker/control/mailbox_inside.h"

#include <stdlib.h>
#include <string.h>

enum { HEARS_OUT_MS = 30000 }; /* the healthy ranks have finished a step by then */

struct rb_mailbox *rb_mailbox_new(struct rb_reports *reports)
{
    struct rb_mailbox *mailbox = rb_alloc(sizeof *mailbox);

    pthread_mutex_init(&mailbox->lock, NULL);
    pthread_cond_init(&mailbox->changed, NULL);
    mailbox->reports = reports;
    mailbox->status.level = mailbox->freezes = -1;
    return mailbox;
}

void rb_settings_done(struct rb_settings *settings)
{
    free(settings->checkpoint_path);
    free(settings->final_folder);
    *settings = (struct rb_settings){0};
}

void rb_mailbox_free(struct rb_mailbox *mailbox)
{
    if (!mailbox)
        return;
    while (mailbox->saves) {
        struct save *save = mailbox->saves;

        mailbox->saves = save->next;
        free(save->order.folder);
        free(save);
    }
    if (mailbox->wanted)
        rb__configure__free_unpacked(mailbox->wanted, NULL);
    rb_configuration_free(mailbox->prepared);
    rb_settings_done(&mailbox->settings);
    free(mailbox->leave_folder);
    pthread_cond_destroy(&mailbox->changed);
    pthread_mutex_destroy(&mailbox->lock);
    free(mailbox);
}

/* What is being prepared is not wanted any more: rb_coll_open reads this flag without a lock. */
static void stop_preparing(struct rb_mailbox *mailbox)
{
    atomic_store(&mailbox->unwanted, true);
    if (mailbox->meeting)
        rb_coll_cancel(mailbox->meeting);
}

/* ---- Orders ---------------------------------------------------------------------------------*/

bool rb_mailbox_fence(struct rb_mailbox *mailbox, uint64_t fence)
{
    bool fresh;

    lock(mailbox);
    fresh = fence >= mailbox->fence;
    if (fresh)
        mailbox->fence = fence;
    unlock(mailbox);
    return fresh;
}

void rb_mailbox_settings(struct rb_mailbox *mailbox, const Rb__Settings *settings)
{
    lock(mailbox);
    rb_settings_done(&mailbox->settings);
    mailbox->settings = (struct rb_settings){
        .checkpoint_path = copy_of(settings->checkpoint_path),
        .checkpoint_every = settings->checkpoint_every,
        .checkpoint_keep = settings->checkpoint_keep,
        .final_folder = copy_of(settings->final_folder),
    };
    unlock(mailbox);
    rb_reports_rows_wait(mailbox->reports, settings->rows_wait_ms);
    rb_reports_rows_after(mailbox->reports, settings->rows_after);
}

/* The configuration that is left after deaths has a number that was reserved for it.  That number
 * is lower than that of a configuration which was prepared beside and is abandoned. */
static bool is_overtaken(const struct rb_mailbox *mailbox, const Rb__Configure *order)
{
    if (is_abandoned(mailbox, order->number))
        return true;
    if (order->number > mailbox->configured)
        return false;
    return !order->recovers || order->number <= mailbox->status.active ||
           !is_abandoned(mailbox, mailbox->configured);
}

void rb_mailbox_configure(struct rb_mailbox *mailbox, Rb__Configure *order)
{
    struct rb_configuration *replaced = NULL;

    lock(mailbox);
    if (is_overtaken(mailbox, order)) {
        unlock(mailbox); /* sent again by an agent that was restarted, or overtaken */
        rb__configure__free_unpacked(order, NULL);
        return;
    }
    mailbox->configured = order->number;
    if (mailbox->wanted)
        rb__configure__free_unpacked(mailbox->wanted, NULL);
    mailbox->wanted = order;
    stop_preparing(mailbox);
    if (mailbox->prepared && mailbox->prepared->number != mailbox->go)
        replaced = RB_TAKE(mailbox->prepared);
    if (mailbox->group && mailbox->group_use == RB_GROUP_FOLLOWING &&
        mailbox->group_number != mailbox->go)
        rb_coll_cancel(mailbox->group);
    unlock_changed(mailbox);
    rb_configuration_free(replaced);
}

void rb_mailbox_go(struct rb_mailbox *mailbox, uint32_t number, bool foreseen)
{
    lock(mailbox);
    if (number > mailbox->go && !is_abandoned(mailbox, number))
        mailbox->go = number;
    if (number == mailbox->go && !foreseen)
        mailbox->breaks_off = number;
    leave_for_recovery(mailbox);
    unlock_changed(mailbox);
}

void rb_mailbox_abandon(struct rb_mailbox *mailbox, uint32_t number)
{
    struct rb_configuration *dropped = NULL;

    lock(mailbox);
    if (number != mailbox->status.active && !is_abandoned(mailbox, number))
        mailbox->abandoned[mailbox->n_abandoned++ % ABANDONED] = number;
    if (mailbox->wanted && mailbox->wanted->number == number) {
        rb__configure__free_unpacked(mailbox->wanted, NULL);
        mailbox->wanted = NULL;
    }
    if (mailbox->preparing == number)
        stop_preparing(mailbox);
    if (mailbox->prepared && mailbox->prepared->number == number)
        dropped = RB_TAKE(mailbox->prepared);
    if (mailbox->group && mailbox->group_use != RB_GROUP_TRAINING &&
        mailbox->group_number == number)
        rb_coll_cancel(mailbox->group);
    unlock_changed(mailbox);
    rb_configuration_free(dropped);
}

void rb_mailbox_save(struct rb_mailbox *mailbox, const Rb__Save *order)
{
    struct save **end, *save;

    lock(mailbox);
    if (mailbox->n_saves < SAVES_LIMIT) {
        save = rb_alloc(sizeof *save);
        save->order = (struct rb_save_order){
            .request = order->request,
            .folder = rb_string(order->folder),
            .export_only = order->export_only != 0,
        };
        for (end = &mailbox->saves; *end; end = &(*end)->next)
            ;
        *end = save;
        mailbox->n_saves++;
    }
    unlock_changed(mailbox);
}

void rb_mailbox_leave(struct rb_mailbox *mailbox, const char *folder, int code)
{
    lock(mailbox);
    mailbox->leaves++;
    mailbox->ends |= !folder;
    mailbox->stays = false;
    if (!atomic_load(&mailbox->stop)) {
        mailbox->leave_folder = copy_of(folder);
        mailbox->leave_code = code;
        mailbox->left_ns = rb_clock_ns();
        atomic_store(&mailbox->stop, true);
        stop_preparing(mailbox);
        if (mailbox->group && !(folder && mailbox->voting))
            rb_coll_cancel(mailbox->group);
    }
    unlock_changed(mailbox);
}

void rb_mailbox_stay(struct rb_mailbox *mailbox)
{
    lock(mailbox);
    mailbox->stays = atomic_load(&mailbox->stop) && !mailbox->ends;
    unlock_changed(mailbox);
}

void rb_mailbox_freeze(struct rb_mailbox *mailbox, int64_t level)
{
    lock(mailbox);
    if (mailbox->group && mailbox->group_use != RB_GROUP_FOLLOWING &&
        mailbox->status.level == level)
        rb_coll_cancel(mailbox->group);
    mailbox->freezes = level;
    unlock_changed(mailbox);
}

int rb_mailbox_hears_out(struct rb_mailbox *mailbox)
{
    uint64_t waited;
    int left = -1;

    lock(mailbox);
    if (mailbox->voting && mailbox->group && atomic_load(&mailbox->stop)) {
        waited = (rb_clock_ns() - mailbox->left_ns) / 1000000;
        if (waited < HEARS_OUT_MS)
            left = (int)(HEARS_OUT_MS - waited);
        else
            rb_coll_cancel(mailbox->group);
    }
    unlock(mailbox);
    return left;
}

void rb_mailbox_status(struct rb_mailbox *mailbox, struct rb_status *ret_status)
{
    lock(mailbox);
    *ret_status = mailbox->status;
    ret_status->configured = mailbox->configured;
    ret_status->fence = mailbox->fence;
    ret_status->saving = atomic_load(&mailbox->stop) && !mailbox->ends;
    ret_status->in_group = mailbox->group != NULL;
    unlock(mailbox);
}

/* ---- Preparing ------------------------------------------------------------------------------*/

/* The order repeats the configuration that this worker is opening (it was foreseen, and what came
 * in between is given up): it is prepared once more only if that opening fails. */
static bool opens_wanted(const struct rb_mailbox *mailbox)
{
    return mailbox->group && mailbox->group_use == RB_GROUP_OPENING && mailbox->wanted &&
           mailbox->group_number == mailbox->wanted->number;
}

Rb__Configure *rb_mailbox_next_order(struct rb_mailbox *mailbox)
{
    Rb__Configure *order;

    lock(mailbox);
    mailbox->preparing = 0;
    while (!mailbox->ends &&
           (!mailbox->wanted || atomic_load(&mailbox->stop) || opens_wanted(mailbox)))
        pthread_cond_wait(&mailbox->changed, &mailbox->lock);
    order = mailbox->ends ? NULL : RB_TAKE(mailbox->wanted);
    if (order) {
        mailbox->preparing = order->number;
        atomic_store(&mailbox->unwanted, false);
    }
    unlock(mailbox);
    if (order) {
        rb_fault_rank((int)order->rank);
        rb_fault("worker.preparing");
    }
    return order;
}

const atomic_bool *rb_mailbox_unwanted(const struct rb_mailbox *mailbox)
{
    return &mailbox->unwanted;
}

void rb_mailbox_meet(struct rb_mailbox *mailbox, struct rb_coll *group)
{
    lock(mailbox);
    mailbox->meeting = group;
    if (group && mailbox->unwanted)
        rb_coll_cancel(group);
    unlock(mailbox);
}

bool rb_mailbox_fresh(struct rb_mailbox *mailbox)
{
    bool fresh;

    lock(mailbox);
    while (mailbox->group && mailbox->group_use == RB_GROUP_FOLLOWING &&
           mailbox->group_number < mailbox->preparing)
        pthread_cond_wait(&mailbox->changed, &mailbox->lock);
    fresh = !mailbox->group && mailbox->status.level < 0;
    unlock(mailbox);
    return fresh;
}

void rb_mailbox_clear(struct rb_mailbox *mailbox)
{
    struct rb_configuration *prepared;

    lock(mailbox);
    prepared = RB_TAKE(mailbox->prepared);
    unlock(mailbox);
    rb_configuration_free(prepared);
}

bool rb_mailbox_prepared(struct rb_mailbox *mailbox, struct rb_configuration *configuration)
{
    struct rb_configuration *replaced = NULL;
    bool wanted;

    lock(mailbox);
    wanted = !mailbox->unwanted;
    if (wanted) {
        replaced = mailbox->prepared;
        mailbox->prepared = configuration;
        mailbox->status.ready = configuration->number;
        leave_for_recovery(mailbox);
    }
    unlock_changed(mailbox);
    rb_configuration_free(replaced);
    return wanted;
}

void rb_mailbox_loaded(struct rb_mailbox *mailbox, struct rb_model *model)
{
    lock(mailbox);
    mailbox->model = model;
    unlock(mailbox);
}
