/* SPDX-License-Identifier: Apache-2.0 */
/* The step thread from inside: for train*.c alone.
 *
 * train: phases, waiting, ends > [train_enter, train_steps] > train_stand */
#ifndef RB_WORKER_TRAIN_INSIDE_H
#define RB_WORKER_TRAIN_INSIDE_H

#include "worker/train.h"

#include "worker/checkpoint/saves.h"
#include "worker/control/tell.h"

/* Pictured in worker/train.h. */
enum rb_train_phase {
    RB_TRAIN_IDLE,
    RB_TRAIN_OPENING,
    RB_TRAIN_FOLLOWING,
    RB_TRAIN_FLIPPING,
    RB_TRAIN_TRAINING,
    RB_TRAIN_FROZEN,
    RB_TRAIN_LEFT,
    RB_TRAIN_DONE,
    RB_TRAIN_FAILED,
    RB_TRAIN_LEAVING,
    RB_TRAIN_ENDED,
};

struct rb_train {
    struct rb_mailbox *mailbox;
    struct rb_reports *reports;
    struct rb_control *control;
    const atomic_bool *stop;
    struct rb_model *model; /* NULL before the first configuration */
    struct rb_saves saves;
    struct rb_configuration *active;  /* opened, or being opened */
    struct rb_configuration *retired; /* before it: kept until the first commit of `active`, so that
                                         nobody misses the end of its last vote */
    struct rb_configuration *next;    /* this rank was told to go there, and says so in votes */
    uint32_t number;                  /* the newest configuration entered */
    uint32_t said;                    /* the newest configuration whose entry was reported */
    struct rb_entrance entrance;      /* into `active` */
    struct rb_circle_past past;       /* the circle that a death has stopped, if there was one */
    size_t pace;                      /* bytes to take behind a step */
    uint64_t taken;                   /* bytes taken so far for the next configuration */
    bool slow_said;
    int code;
};

/* -1: there is no state. */
static inline int64_t rb_train_level(const struct rb_train *train)
{
    return train->model ? train->model->state.level : -1;
}

/* ---- Where it stands: train_stand.c ----------------------------------------------------------*/

/* From now on the state changes only by steps of `number`, or (0) in any way. */
void rb_train_enter_term(struct rb_train *train, uint32_t number);
/* Tell the other threads that this one is in `phase`, and enter the term that goes with it. */
void rb_train_stand(struct rb_train *train, enum rb_train_phase phase);
void rb_train_leave_groups(struct rb_train *train);
void rb_train_forget_circle(struct rb_train *train);

/* Report the failure: FAILED. */
enum rb_train_phase rb_train_fail(struct rb_train *train, int err, const char *reason);
/* An attempt or an opening ended early: a lost peer freezes the worker, other errors fail it. */
enum rb_train_phase rb_train_interrupted(struct rb_train *train, int err, struct rb_why *why);
enum rb_train_phase rb_train_freeze(struct rb_train *train, const char *reason);
/* The worker was to save and leave, and is to stay instead: it freezes with its state. */
enum rb_train_phase rb_train_stay(struct rb_train *train);

/* ---- Into a configuration: train_enter.c -----------------------------------------------------*/

/* Into `next`: of a worker with or without state (OPENING), of one that trained on (FLIPPING), of a
 * newcomer that is fed (FOLLOWING). */
enum rb_train_phase rb_train_opening(struct rb_train *train);
enum rb_train_phase rb_train_flipping(struct rb_train *train);
enum rb_train_phase rb_train_following(struct rb_train *train);

/* Reports the entry, once.  The report ends the configuration before it, and workers that are in no
 * other are dismissed. */
void rb_train_tell_entered(struct rb_train *train);

/* ---- In a configuration: train_steps.c -------------------------------------------------------*/

/* Train step after step, until something else is to be done. */
enum rb_train_phase rb_train_training(struct rb_train *train);

/* Is an evaluation due at the present level? */
bool rb_train_evaluates(const struct rb_train *train);

#endif
