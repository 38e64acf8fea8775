/* SPDX-License-Identifier: Apache-2.0 */
/* A lap: steps of an asynchronous pipeline, run without a stop and committed as one.
 *
 * orders > step > [lap] > flight (each pass with weights of its own choice)
 *                       > update (each stage its own, behind each backward)
 *                       > one vote > state, so many levels on
 *
 * A step of a lap is one minibatch.  Stages update their weights while other minibatches are on
 * their way, in `work`, a copy of what a stage makes; the state itself stays at the level at which
 * the lap began.  So to everything else (feeds, snapshots, recovery, parking) a lap is what a step
 * is elsewhere: whatever interrupts it leaves the state whole.  At its end each rank that holds
 * blocks is given them, into its own `work`; then all ranks say what came of each step
 * (RB_TAG_VOTE, part 1), vote, and copy what they hold.  A rank that has heard all ranks say so can
 * commit without hearing the vote, for there is nothing to decide: a lap is never voted down
 * (worker/join/recovery.h).
 *
 * Sums.  A gradient goes through the same fixed-point sums as anywhere, so that one update serves
 * all, but no other rank is asked about exponents: where a summand does not fit (or there is no
 * history), the summand is taken back, the exponent is chosen anew and the summand is added again,
 * at once.  A step whose gradient is no number, or that has no valid target, is left out by the
 * stage that sees it.
 *
 * The bits follow from the model and the number of stages: orders say which pass comes next and how
 * far weights are predicted, and no clock does. */
#ifndef RB_WORKER_STAGES_LAP_H
#define RB_WORKER_STAGES_LAP_H

#include "worker/configuration.h"
#include "worker/stages/flight.h"
#include "worker/model.h"

#include <stdatomic.h>

/* What came of a step; travels as it lies. */
struct rb_lap_row {
    double loss;
    int64_t count, correct;
    double squares; /* of the gradient, of this stage and then of all */
    uint32_t wild;  /* loss or gradient is no number: some stage left the step out */
    uint32_t zero;
};

/* A pass that is about to run, for an observer. */
struct rb_lap_pass {
    const struct rb_model *model;
    bool back;
    uint32_t step;    /* of the lap */
    uint32_t version; /* steps of the lap that are in its weights */
    uint32_t ahead;
    const float *weights; /* that it reads */
};

struct rb_lap {
    uint32_t steps, updated; /* of this lap; those that this stage is through with */
    struct rb_state work;
    uint8_t *mine;                 /* by block: this stage makes its gradient */
    float **views;                 /* weights of passes, where they are not `work`'s */
    uint32_t *stashed;             /* by view: its version */
    uint32_t viewed, viewed_ahead; /* what the only view of predicted weights is: 1 + version, and
                                      how far ahead; 0: nothing yet */
    uint32_t n_views;
    uint32_t stages, stage;        /* that `mine` and `views` are for */
    struct rb_lap_row *rows;       /* by step */
    uint64_t *done;                /* by step: when this stage was done with it (rb_clock_ns) */
    struct rb_exponent *exponents; /* by variable, at the lap's end */
    bool wild;                     /* of the step at hand: a gradient is no number */
    int64_t count;                 /* and its valid targets so far, */
    uint32_t summed;               /* of so many microbatches */
    /* The newest lap that was committed here, for rows. */
    int64_t from, level;
    uint32_t configuration, devices;
    uint64_t started;
};

/* The level behind the next commit. */
int64_t rb_lap_next(const struct rb_model *model, const struct rb_configuration *configuration);

/* Begin a lap, from the state as it is.  RB_ENOMEM. */
int rb_lap_begin(struct rb_model *model, const struct rb_configuration *configuration,
                 struct rb_why *why);
void rb_lap_free(struct rb_model *model);

/* Run an order of the lap, unless its step is behind the lap's end.  watch: may be NULL. */
struct rb_lap_run {
    struct rb_model *model;
    const struct rb_configuration *configuration;
    const atomic_bool *stop;
    void (*watch)(const struct rb_lap_pass *pass, void *owner);
    void *owner;
};
int rb_lap_forward(struct rb_lap_run *run, const Rb__Order *order, struct rb_why *why);
int rb_lap_backward(struct rb_lap_run *run, const Rb__Order *order, struct rb_why *why);

/* When all of the lap is run: give the blocks of a bucket to the ranks that hold them. */
int rb_lap_share(struct rb_model *model, const struct rb_configuration *configuration,
                 uint32_t bucket, struct rb_why *why);

/* Tell all ranks what came of each step, and hear it from all. */
int rb_lap_report(struct rb_model *model, const struct rb_configuration *configuration,
                  struct rb_why *why);

/* Bring the state to the lap's end. */
void rb_lap_commit(struct rb_model *model);

#endif
