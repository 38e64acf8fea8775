/* SPDX-License-Identifier: Apache-2.0 */
/* The mailbox from inside: for mailbox.c (orders, preparing) and mailbox_step.c alone. */
#ifndef RB_WORKER_CONTROL_MAILBOX_INSIDE_H
#define RB_WORKER_CONTROL_MAILBOX_INSIDE_H

#include "base/arena.h"
#include "worker/control/mailbox.h"

#include <pthread.h>

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
    uint32_t configured; /* the newest configuration to prepare */
    uint32_t go;         /* the newest configuration to flip to */
    uint32_t breaks_off; /* the newest to go to at once if it recovers: all are ready */
    uint32_t abandoned[ABANDONED];
    unsigned n_abandoned;
    struct save *saves;
    unsigned n_saves;
    struct rb_settings settings;
    bool ends;  /* there is nothing to stay for */
    bool stays; /* the order to save and leave is taken back */
    char *leave_folder;
    int leave_code;
    unsigned leaves;  /* times that it was told to leave */
    uint64_t left_ns; /* when it was told to leave */

    Rb__Configure *wanted;   /* to be prepared */
    uint32_t preparing;      /* is being prepared; 0: none */
    atomic_bool unwanted;    /* what is being prepared is unwanted */
    struct rb_coll *meeting; /* where the preparing thread may be blocked */
    struct rb_configuration *prepared;
    struct rb_model *model;

    struct rb_coll *group; /* where the step thread may be blocked */
    uint32_t group_number;
    enum rb_group_use group_use;
    bool voting; /* what this rank says may have been heard: see rb_mailbox_ready */
    struct rb_status status;
    int64_t freezes; /* the level at which it is to freeze; -1: none */
};

static inline void lock(struct rb_mailbox *mailbox)
{
    pthread_mutex_lock(&mailbox->lock);
}

static inline void unlock(struct rb_mailbox *mailbox)
{
    pthread_mutex_unlock(&mailbox->lock);
}

/* Where a thread may wait for what has changed.  A waiting thread shares the core with the one that
 * trains, so no thread is woken up for less. */
static inline void unlock_changed(struct rb_mailbox *mailbox)
{
    pthread_cond_broadcast(&mailbox->changed);
    pthread_mutex_unlock(&mailbox->lock);
}

static inline char *copy_of(const char *text)
{
    return text ? rb_string(text) : NULL;
}

static inline bool is_abandoned(const struct rb_mailbox *mailbox, uint32_t number)
{
    for (unsigned i = 0; i < ABANDONED; i++)
        if (mailbox->abandoned[i] == number)
            return true;
    return false;
}

/* A step thread that is told to go to a recovery leaves the group that it waits in, since perhaps
 * no other rank will end that wait.  It leaves the opening of another configuration, which was
 * given up or has lost a member.  It leaves a step only where all are ready for the recovery: the
 * recovery lacks a rank that the step would need, and that rank may stand still. */
static inline void leave_for_recovery(struct rb_mailbox *mailbox)
{
    const struct rb_configuration *next = mailbox->prepared;
    bool at_once = mailbox->group_use == RB_GROUP_OPENING ||
                   (mailbox->group_use == RB_GROUP_TRAINING && mailbox->go == mailbox->breaks_off);

    if (mailbox->group && at_once && next && next->recovers && next->number == mailbox->go &&
        next->number != mailbox->group_number)
        rb_coll_cancel(mailbox->group);
}

#endif
