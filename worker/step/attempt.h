/* SPDX-License-Identifier: Apache-2.0 */
/* An attempt at a step: what the orders of a rank do, one by one.
 *
 * step (the orders) > [attempt_compute, attempt_part] a microbatch > [attempt_results] what it came
 * to > [attempt_sums] of all ranks > [attempt_vote] > [attempt_state] update, weights
 *
 * All of it runs on the step thread.  Up to the update nothing but sums and the record changes. */
#ifndef RB_WORKER_STEP_ATTEMPT_H
#define RB_WORKER_STEP_ATTEMPT_H

#include "worker/step/step.h"

struct rb_unsaid {
    uint32_t microbatch;
    bool correct; /* they say how many were */
};

/* An attempt under way. */
struct rb_attempt {
    const struct rb_step *step;
    struct rb_vote_shape shape;
    uint32_t number;
    bool laps;  /* it is one (worker/stages/lap.h) */
    bool alone; /* of sums that a rank is to have it makes all: they stay where they are */
    uint64_t computed_ns; /* its microbatches, as far as they are in the record; */
    uint32_t computed;    /* so many in all.  Those that were kept are not among either */
    /* Microbatches whose results the device has still, in their order: they are in the sums, and
     * not in the record. */
    struct rb_unsaid *unsaid;
    uint32_t n_unsaid;
    uint64_t began_ns; /* the first of them, where it counts; 0: none does */
    bool *stays;       /* by rank, where the vote flips: it goes on in the next configuration */
    struct rb_vote_ready *said; /* by rank: what it takes */
    /* of the microbatch that runs */
    uint32_t microbatch;
    const struct rb_runner *runner;
    size_t next;                 /* contribution to add next */
    const struct rb_runner *ran; /* the last one of this step: weights are as it left them */
};

/* ---- attempt_compute.c: a microbatch, into sums and the record --------------------------------*/

/* All of it (owner: the attempt), if it is not in the sums already. */
int rb_attempt_compute(uint32_t microbatch, void *owner, struct rb_why *why);
/* What order *at says, and as many behind it as go together; *at becomes the last of them. */
int rb_attempt_planned(struct rb_attempt *attempt, size_t *at, struct rb_why *why);
/* Whatever this rank comes to compute, where microbatches may change hands (worker/step/steal.h).
 */
int rb_attempt_shared(struct rb_attempt *attempt, struct rb_why *why);
/* This rank's stage of one, there or back; of a lap where it is one. */
int rb_attempt_stage(struct rb_attempt *attempt, const Rb__Order *order, struct rb_why *why);
/* The microbatch that order *at says, and those right behind it that are of the same program, but
 * for what is in the sums already: `most` at most, or 0; *at becomes the last order of them.
 * odd_last: the last microbatch of all has a program of its own. */
uint32_t rb_attempt_group(const struct rb_attempt *attempt, size_t *at, bool odd_last,
                          uint32_t most, uint32_t *ret_microbatches);

/* ---- attempt_part.c: this rank's filters of it ------------------------------------------------*/

/* Its programs are ready, and all ranks know how many microbatches they compute at once. */
int rb_attempt_part_begin(struct rb_attempt *attempt, struct rb_why *why);
/* As rb_attempt_planned. */
int rb_attempt_part(struct rb_attempt *attempt, size_t *at, struct rb_why *why);

/* ---- attempt_results.c: what microbatches came to, into the record ----------------------------*/

/* One that counts towards computed_ns begins. */
void rb_attempt_begin(struct rb_attempt *attempt);
/* It has run: its results are kept on the device, so that the next one can be asked for while this
 * one runs. */
void rb_attempt_keep(struct rb_attempt *attempt, uint32_t microbatch,
                     const struct rb_runner *runner);
/* Of a stage, or a part: only the last one has seen what a microbatch came to. */
void rb_attempt_end_part(struct rb_attempt *attempt, uint32_t microbatch,
                         const struct rb_runner *runner);
/* All that were kept are in the record.  To be called before anyone is told of them. */
int rb_attempt_say(struct rb_attempt *attempt, struct rb_why *why);

/* ---- attempt_sums.c: what microbatches are added to, and the sums of all ranks ----------------*/

/* Does each rank make all of the sums that it is to have, and no others?  All come to the same. */
bool rb_attempt_alone(const struct rb_attempt *attempt);
/* In front of the first microbatch: nothing is in them.  empty: what of model->local and reduced
 * takes no memory, or NULL. */
void rb_attempt_open_sums(struct rb_attempt *attempt, const int32_t *empty);
int rb_attempt_reduce(struct rb_attempt *attempt, uint32_t bucket, struct rb_why *why);
/* Behind the last bucket: `reduced` has them. */
void rb_attempt_close_sums(struct rb_attempt *attempt);

/* ---- attempt_vote.c: what all have come to, and what comes of it ------------------------------*/

int rb_attempt_vote(struct rb_attempt *attempt, struct rb_vote_decision *ret_decision,
                    struct rb_why *why);

/* ---- attempt_state.c: the state goes on, and to who needs it ----------------------------------*/

void rb_attempt_update(const struct rb_step *step, struct rb_step_result *result);
/* Sums that were read where they are may be written again, by anybody. */
int rb_attempt_viewed(const struct rb_attempt *attempt, const struct rb_step_result *result,
                      struct rb_why *why);
/* Weights of the blocks that are held elsewhere. */
int rb_attempt_gather(struct rb_attempt *attempt, const struct rb_step_result *result,
                      struct rb_why *why);
/* Blocks of those who are to hold them (worker/join/taking.h). */
int rb_attempt_take(struct rb_attempt *attempt, struct rb_step_result *result, struct rb_why *why);
/* Who leaves gives what only leavers have to those who stay: where it was not taken before. */
int rb_attempt_hand_over(struct rb_attempt *attempt, struct rb_why *why);

#endif
