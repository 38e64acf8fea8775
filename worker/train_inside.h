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

/* -1: there is no state. */
static inline int64_t rb_train_level(const struct rb_train *train)
{
    return train->model ? train->model->state.level : -1;
}

/* ---- Where it stands: train_stand.c ----------------------------------------------------------*/

/* What is done to the state from now on: steps of `number`, or (0) anything. */
void rb_train_enter_term(struct rb_train *train, uint32_t number);
/* For the threads beside it: it is in `phase`.  Enters the term that goes with it. */
void rb_train_stand(struct rb_train *train, enum rb_train_phase phase);
void rb_train_leave_groups(struct rb_train *train);
void rb_train_forget_circle(struct rb_train *train);

/* An end that is said: FAILED. */
enum rb_train_phase rb_train_fail(struct rb_train *train, int err, const char *reason);
/* An attempt or an opening ended early: a lost peer freezes, the rest is an end. */
enum rb_train_phase rb_train_interrupted(struct rb_train *train, int err, struct rb_why *why);
enum rb_train_phase rb_train_freeze(struct rb_train *train, const char *reason);
/* What it was to save before it left is to go on here: it freezes with it. */
enum rb_train_phase rb_train_stay(struct rb_train *train);

/* ---- Into a configuration: train_enter.c -----------------------------------------------------*/

/* Into `next`: whoever has a state or none (OPENING), who trained on (FLIPPING), a newcomer that
 * is fed (FOLLOWING). */
enum rb_train_phase rb_train_opening(struct rb_train *train);
enum rb_train_phase rb_train_flipping(struct rb_train *train);
enum rb_train_phase rb_train_following(struct rb_train *train);

/* Once: with that the configuration before it is over, and who is in no other is dismissed. */
void rb_train_tell_entered(struct rb_train *train);

/* ---- In a configuration: train_steps.c -------------------------------------------------------*/

/* Step after step, until something else is to be done. */
enum rb_train_phase rb_train_training(struct rb_train *train);

/* Is an evaluation due at the present level? */
bool rb_train_evaluates(const struct rb_train *train);

#endif
