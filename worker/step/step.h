/* SPDX-License-Identifier: Apache-2.0 */
/* One step: the orders of this rank, as often as the vote asks for.
 *
 * orders > [step] > attempt (program, rb_fixed_add, rb_coll_sum, vote, update)
 *
 * An attempt changes sums and nothing else; the state changes at UPDATE, which cannot fail or be
 * stopped.  So whatever interrupts a step before it leaves the state whole at its level.  Where the
 * state is sharded, each rank updates the blocks that it holds, and then weights are gathered:
 * what interrupts that leaves the step committed and the state torn (worker/state/state.h).
 *
 * In a pipeline weights go only to ranks whose stage reads them, unless some rank needs more of
 * them after the step; there too the state is torn.  A rank runs its stage of each microbatch in
 * two orders (worker/stages/flight.h), and drops what it had of an attempt that was given up.
 *
 * Where the plan lets microbatches change hands (worker/step/steal.h) and the previous vote found
 * that this pays, COMPUTE orders say which rank has each microbatch at first, not which rank
 * computes it.
 *
 * Reducing is out of place, with two exceptions: each rank alone makes all of the sums that it
 * holds (rb_attempt_alone), or a few ranks of one host read each other's sums in place
 * (worker/step/views.h).  An attempt that is given up because a peer is lost leaves its local sums
 * in the model; the first attempt of the next configuration computes only what they lack, where its
 * orders cover them and the exponents are the same.  Else it starts with empty sums. */
#ifndef RB_WORKER_STEP_STEP_H
#define RB_WORKER_STEP_STEP_H

#include "worker/configuration.h"
#include "worker/model.h"
#include "worker/step/vote.h"

#include <stdatomic.h>

struct rb_lap_pass;

struct rb_step {
    struct rb_model *model;
    struct rb_configuration *configuration;
    const atomic_bool *stop; /* set by another thread: RB_ECANCELED between two instructions */
    /* What this rank says of configurations to come; asked at each vote. */
    void (*ready)(struct rb_vote_ready *ret_ready, void *owner);
    /* The vote that was asked for is over, whatever came of it. */
    void (*voted)(void *owner);
    /* The state is about to change. */
    void (*changing)(void *owner);
    /* Behind an update: will all of the weights be read at the level that it has led to? */
    bool (*reads_all)(void *owner);
    /* Of a lap: a pass is about to run.  May be NULL. */
    void (*watch)(const struct rb_lap_pass *pass, void *owner);
    void *owner;
};

struct rb_step_result {
    struct rb_vote_decision decision;
    double grad_norm, lr;
    uint32_t redone;    /* attempts voted down */
    uint32_t kept;      /* microbatches that were taken over from an attempt that was given up */
    size_t taken;       /* bytes of blocks that were taken after the step (worker/join/taking.h), */
    uint64_t taking_ns; /* and how long that took */
    bool lap;           /* it was a lap: the results of each of its steps are in model->lap */
    bool committed;     /* the state is at the next level, also where an error is returned */
};

/* RB_EPEER, RB_ECANCELED: the step was abandoned and the state is as before, or it was committed
 * and the state is torn.  RB_EINTERNAL: something is broken and must not go on. */
int rb_step_run(const struct rb_step *step, struct rb_step_result *ret_result, struct rb_why *why);

#endif
