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
    uint32_t configured; /* the newest order to prepare */
    uint32_t go;         /* the newest configuration to flip to */
    uint32_t breaks_off; /* and if it recovers, at once: all are ready for it */
    uint32_t abandoned[ABANDONED];
    unsigned n_abandoned;
    struct save *saves;
    unsigned n_saves;
    struct rb_settings settings;
    bool ends;  /* there is nothing to stay for */
    bool stays; /* what it was told to do before it leaves is taken back */
    char *leave_folder;
    int leave_code;
    unsigned leaves;  /* times that it was told */
    uint64_t left_ns; /* when it was told */

    Rb__Configure *wanted;   /* to be prepared */
    uint32_t preparing;      /* is being prepared; 0: none */
    atomic_bool unwanted;    /* what is being prepared */
    struct rb_coll *meeting; /* the preparing thread may be blocked in */
    struct rb_configuration *prepared;
    struct rb_model *model;

    struct rb_coll *group; /* the step thread may be blocked in */
    uint32_t group_number;
    enum rb_group_use group_use;
    bool voting; /* what it says may have been heard: see rb_mailbox_ready */
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

/* Where anybody may wait for what has been changed: who waits shares the core with who trains, so
 * nobody is woken up for less. */
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

/* Whoever is told to go to a recovery leaves what it waits in, where it may be that nobody else
 * says that this is over: the opening of another configuration, which was given up or has lost
 * somebody; and, where all are ready for the recovery, a step, for that is without somebody whom
 * the step would need, and who may stand still. */
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
