/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/mailbox.h"

#include "base/arena.h"
#include "base/fault.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ABANDONED = 16, SAVES_LIMIT = 256 };

struct save {
    struct save *next;
    struct rb_save_order order;
};

struct rb_mailbox {
    struct rb_reports *reports;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool stop;

    uint64_t fence;
    uint32_t configured; /* the newest order to prepare */
    uint32_t go;         /* the newest configuration to flip to */
    uint32_t abandoned[ABANDONED];
    unsigned n_abandoned;
    struct save *saves;
    unsigned n_saves;
    struct rb_settings settings;
    char *leave_folder;
    int leave_code;

    Rb__Configure *wanted;   /* to be prepared */
    uint32_t preparing;      /* is being prepared; 0: none */
    volatile bool unwanted;  /* what is being prepared */
    struct rb_coll *meeting; /* the preparing thread may be blocked in */
    struct rb_configuration *prepared;
    struct rb_model *model;

    struct rb_coll *group; /* the step thread may be blocked in */
    uint32_t group_number;
    enum rb_group_use group_use;
    struct rb_status status;
};

struct rb_mailbox *rb_mailbox_new(struct rb_reports *reports)
{
    struct rb_mailbox *mailbox = rb_alloc(sizeof *mailbox);

    pthread_mutex_init(&mailbox->lock, NULL);
    pthread_cond_init(&mailbox->changed, NULL);
    mailbox->reports = reports;
    mailbox->status.level = -1;
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

static void lock(struct rb_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
}

static void unlock(struct rb_mailbox *mailbox)
{
    pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->lock);
}

static char *copy_of(const char *text)
{
    return text ? rb_string(text) : NULL;
}

static bool is_abandoned(const struct rb_mailbox *mailbox, uint32_t number)
{
    for (unsigned i = 0; i < ABANDONED; i++)
        if (mailbox->abandoned[i] == number)
            return true;
    return false;
}

/* What is being prepared is not wanted any more: rb_coll_open looks at this without a lock. */
static void stop_preparing(struct rb_mailbox *mailbox)
{
    __atomic_store_n(&mailbox->unwanted, true, __ATOMIC_RELEASE);
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
    rb_reports_rows_after(mailbox->reports, settings->rows_after);
}

void rb_mailbox_configure(struct rb_mailbox *mailbox, Rb__Configure *order)
{
    struct rb_configuration *replaced = NULL;

    lock(mailbox);
    if (order->number <= mailbox->configured || is_abandoned(mailbox, order->number)) {
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
    unlock(mailbox);
    rb_configuration_free(replaced);
}

void rb_mailbox_go(struct rb_mailbox *mailbox, uint32_t number)
{
    lock(mailbox);
    if (number > mailbox->go && !is_abandoned(mailbox, number))
        mailbox->go = number;
    unlock(mailbox);
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
    unlock(mailbox);
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
    unlock(mailbox);
}

void rb_mailbox_leave(struct rb_mailbox *mailbox, const char *folder, int code)
{
    lock(mailbox);
    if (!atomic_load(&mailbox->stop)) {
        mailbox->leave_folder = copy_of(folder);
        mailbox->leave_code = code;
        atomic_store(&mailbox->stop, true);
        stop_preparing(mailbox);
        if (mailbox->group)
            rb_coll_cancel(mailbox->group);
    }
    unlock(mailbox);
}

void rb_mailbox_status(struct rb_mailbox *mailbox, struct rb_status *ret_status)
{
    lock(mailbox);
    *ret_status = mailbox->status;
    ret_status->in_group = mailbox->group != NULL;
    unlock(mailbox);
}

/* ---- Preparing ------------------------------------------------------------------------------*/

Rb__Configure *rb_mailbox_next_order(struct rb_mailbox *mailbox)
{
    Rb__Configure *order;

    lock(mailbox);
    mailbox->preparing = 0;
    while (!mailbox->wanted && !atomic_load(&mailbox->stop))
        pthread_cond_wait(&mailbox->changed, &mailbox->lock);
    order = atomic_load(&mailbox->stop) ? NULL : RB_TAKE(mailbox->wanted);
    if (order) {
        mailbox->preparing = order->number;
        __atomic_store_n(&mailbox->unwanted, false, __ATOMIC_RELEASE);
    }
    unlock(mailbox);
    if (order) {
        rb_fault_rank((int)order->rank);
        rb_fault("worker.preparing");
    }
    return order;
}

const volatile bool *rb_mailbox_unwanted(const struct rb_mailbox *mailbox)
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
    }
    unlock(mailbox);
    rb_configuration_free(replaced);
    return wanted;
}

void rb_mailbox_loaded(struct rb_mailbox *mailbox, struct rb_model *model)
{
    lock(mailbox);
    mailbox->model = model;
    unlock(mailbox);
}

/* ---- Stepping -------------------------------------------------------------------------------*/

static bool can_open(const struct rb_mailbox *mailbox)
{
    return mailbox->prepared && mailbox->prepared->number == mailbox->go;
}

/* One with a roster is not waited for: a newcomer follows it at once, others have no use for it. */
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
        pthread_cond_wait(&mailbox->changed, &mailbox->lock);
    }
    pthread_mutex_unlock(&mailbox->lock);
    return event;
}

void rb_mailbox_kick(struct rb_mailbox *mailbox)
{
    lock(mailbox);
    unlock(mailbox);
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

/* The first member whose link has ended, -1: none. */
static int lost_member(const struct rb_configuration *configuration)
{
    for (uint32_t r = 0; r < configuration->size; r++)
        if (r != configuration->rank && rb_coll_lost(configuration->coll, (int)r))
            return (int)r;
    return -1;
}

static void report_loss(struct rb_mailbox *mailbox, uint32_t number, int rank)
{
    Rb__FromWorker message = RB__FROM_WORKER__INIT;
    Rb__Unready unready = RB__UNREADY__INIT;
    RB_CLEANUP(rb_freep) char *reason = rb_format("the link to rank %d ended", rank);

    unready.number = number;
    unready.reason = reason;
    message.unready = &unready;
    rb_reports_post(mailbox->reports, &message);
}

void rb_mailbox_ready(struct rb_mailbox *mailbox, struct rb_configuration **next,
                      struct rb_vote_ready *ret_ready)
{
    struct rb_configuration *dropped = NULL;
    struct rb_vote_ready ready = {0};
    int lost = -1;

    lock(mailbox);
    if (*next && ((*next)->number != mailbox->go || is_abandoned(mailbox, (*next)->number)))
        dropped = RB_TAKE(*next);
    if (!*next && can_open(mailbox))
        *next = RB_TAKE(mailbox->prepared);
    if (*next)
        ready = (struct rb_vote_ready){(*next)->number, true, (*next)->digest};
    else if (mailbox->go > mailbox->status.active && mailbox->go > mailbox->configured &&
             !is_abandoned(mailbox, mailbox->go))
        ready = (struct rb_vote_ready){.number = mailbox->go}; /* it goes on without this worker */
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

void rb_mailbox_enter(struct rb_mailbox *mailbox, const struct rb_configuration *configuration,
                      enum rb_group_use use)
{
    lock(mailbox);
    mailbox->group = configuration ? configuration->coll : NULL;
    mailbox->group_number = configuration ? configuration->number : 0;
    mailbox->group_use = use;
    if (mailbox->group &&
        (atomic_load(&mailbox->stop) ||
         (use != RB_GROUP_TRAINING && is_abandoned(mailbox, mailbox->group_number)) ||
         (use == RB_GROUP_FOLLOWING && mailbox->configured > mailbox->group_number &&
          mailbox->group_number != mailbox->go)))
        rb_coll_cancel(mailbox->group);
    unlock(mailbox);
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
