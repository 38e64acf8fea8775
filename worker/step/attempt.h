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
    bool correct; /* the program counts correct predictions */
};

/* An attempt under way. */
struct rb_attempt {
    const struct rb_step *step;
    struct rb_vote_shape shape;
    uint32_t number;
    bool laps;  /* the attempt is a lap (worker/stages/lap.h) */
    bool alone; /* each rank makes all of the sums that it is to have: they stay where they are */
    uint64_t computed_ns; /* spent on the microbatches that are in the record; */
    uint32_t computed;    /* so many in all.  Neither counts microbatches that were kept */
    /* Microbatches whose results are still on the device, in order: they are in the sums, but not
     * yet in the record. */
    struct rb_unsaid *unsaid;
    uint32_t n_unsaid;
    uint64_t began_ns; /* when the first of them that counts began; 0: none has */
    bool *stays;       /* by rank, where the vote flips: it goes on in the next configuration */
    struct rb_vote_ready *said; /* by rank: the blocks that it takes, or gives up */
    /* of the microbatch that runs */
    uint32_t microbatch;
    const struct rb_runner *runner;
    size_t next;                 /* contribution to add next */
    const struct rb_runner *ran; /* the last one run in this step: weights are as it left them */
};

/* ---- attempt_compute.c: a microbatch, into sums and the record --------------------------------*/

/* Compute all of a microbatch (owner: the attempt), unless it is in the sums already. */
int rb_attempt_compute(uint32_t microbatch, void *owner, struct rb_why *why);
/* Run order *at, and as many behind it as go together with it; *at becomes the last of them. */
int rb_attempt_planned(struct rb_attempt *attempt, size_t *at, struct rb_why *why);
/* Compute whatever comes to this rank, where microbatches may change hands
 * (worker/step/steal.h). */
int rb_attempt_shared(struct rb_attempt *attempt, struct rb_why *why);
/* Run this rank's stage of a microbatch, forward or backward; of a lap where the attempt is one. */
int rb_attempt_stage(struct rb_attempt *attempt, const Rb__Order *order, struct rb_why *why);
/* Into ret_microbatches: the microbatch of order *at and those of the orders right behind it that
 * run the same program, without those in the sums already.  Returns how many, `most` at most, or 0;
 * *at becomes the last of these orders.  odd_last: the last microbatch of all has a program of its
 * own. */
uint32_t rb_attempt_group(const struct rb_attempt *attempt, size_t *at, bool odd_last,
                          uint32_t most, uint32_t *ret_microbatches);

/* ---- attempt_part.c: this rank's filters of a microbatch --------------------------------------*/

/* Make this rank's programs ready, and agree with all ranks how many microbatches are computed at
 * once. */
int rb_attempt_part_begin(struct rb_attempt *attempt, struct rb_why *why);
/* As rb_attempt_planned. */
int rb_attempt_part(struct rb_attempt *attempt, size_t *at, struct rb_why *why);

/* ---- attempt_results.c: what microbatches came to, into the record ----------------------------*/

/* A microbatch that counts towards computed_ns begins. */
void rb_attempt_begin(struct rb_attempt *attempt);
/* A microbatch has been run: its results are kept on the device, so that the next one can be queued
 * while this one still runs. */
void rb_attempt_keep(struct rb_attempt *attempt, uint32_t microbatch,
                     const struct rb_runner *runner);
/* The same for a stage, or a part: only the last one has the results of a microbatch. */
void rb_attempt_end_part(struct rb_attempt *attempt, uint32_t microbatch,
                         const struct rb_runner *runner);
/* Put all kept results into the record.  Must be called before any rank is told of those
 * microbatches. */
int rb_attempt_say(struct rb_attempt *attempt, struct rb_why *why);

/* ---- attempt_sums.c: what microbatches are added to, and the sums of all ranks ----------------*/

/* Does each rank make all of the sums that it is to have, and no others?  All ranks get the same
 * answer. */
bool rb_attempt_alone(const struct rb_attempt *attempt);
/* Before the first microbatch: empty the sums.  empty: the one of model->local and model->reduced
 * that takes no memory, or NULL. */
void rb_attempt_open_sums(struct rb_attempt *attempt, const int32_t *empty);
int rb_attempt_reduce(struct rb_attempt *attempt, uint32_t bucket, struct rb_why *why);
/* After the last bucket: from now on `reduced` has the sums of all ranks. */
void rb_attempt_close_sums(struct rb_attempt *attempt);

/* ---- attempt_vote.c: what all have come to, and what comes of it ------------------------------*/

int rb_attempt_vote(struct rb_attempt *attempt, struct rb_vote_decision *ret_decision,
                    struct rb_why *why);

/* ---- attempt_state.c: the state goes on, and to the ranks that need it ------------------------*/

void rb_attempt_update(const struct rb_step *step, struct rb_step_result *result);
/* Wait until all ranks have read the sums that they view in place; then any rank may write its own
 * again. */
int rb_attempt_viewed(const struct rb_attempt *attempt, const struct rb_step_result *result,
                      struct rb_why *why);
/* Give each rank the weights of the blocks that it does not hold. */
int rb_attempt_gather(struct rb_attempt *attempt, const struct rb_step_result *result,
                      struct rb_why *why);
/* Give blocks to the ranks that are to hold them (worker/join/taking.h). */
int rb_attempt_take(struct rb_attempt *attempt, struct rb_step_result *result, struct rb_why *why);
/* Leavers give the blocks that only leavers hold to ranks that stay, unless those took them
 * before. */
int rb_attempt_hand_over(struct rb_attempt *attempt, struct rb_why *why);

#endif
