/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches on their way through a stage of a pipeline.
 *
 * orders > step > [flight] > program, rb_coll_post, rb_coll_receive
 *
 * Several are under way at once: forward has run, backward has not come back.  Each has an arena of
 * its own, of which it touches what its stage makes and is given.  Flights belong to the model and
 * are used again, whatever stage this rank has next.
 *
 * Where steps follow each other without a stop (worker/stages/lap.h), microbatches are counted
 * through the lap, each pass has weights that the pilot names, and what comes back says how many
 * valid targets there were, so that each stage can update its own weights. */
#ifndef RB_WORKER_STAGES_FLIGHT_H
#define RB_WORKER_STAGES_FLIGHT_H

#include "worker/configuration.h"
#include "worker/model.h"

#include <stdatomic.h>

struct rb_flight {
    struct rb_flight *next;
    struct rb_runner runner;      /* the program in an arena of its own */
    const struct rb_runner *twin; /* the model's runner of the same program */
    void *arena;
    float *weights;        /* that it reads */
    struct rb_marks *mark; /* behind a pass; NULL: a pass is done when it has been asked for */
    bool flies;
    uint32_t microbatch; /* of the step, or of the lap */
    int64_t count;       /* of a lap: its valid targets, once it has come back */
    size_t next_contribution;
    struct rb_freight {
        uint8_t *bytes; /* the device's memory */
        size_t room;
    } * in, *out;                   /* by stage: messages */
    uint32_t stages, configuration; /* that they are for */
};

/* What runs a step's microbatches. */
struct rb_pilot {
    struct rb_model *model;
    const struct rb_configuration *configuration;
    float *weights; /* all stages' in their places, of which this one's count */
    bool laps;
    uint32_t attempt;
    const atomic_bool *stop;
    /* A contribution of this rank is ready, or will be when the pass is done: a pass that is played
     * calls this before any contribution is ready.  It may add the contribution, and not look at
     * it. */
    void (*add)(const struct rb_flight *flight, const Rb__Contribution *contribution, void *owner);
    void *owner;
};

/* Run this stage's part of a microbatch up to the loss, once what it reads of stages in front of it
 * is here.  RB_ECANCELED, RB_EPEER: the attempt is over. */
int rb_flight_forward(const struct rb_pilot *pilot, uint32_t microbatch, struct rb_why *why);

/* Run the rest of the microbatch; ret_flight: where its results are, until the next call. */
int rb_flight_backward(const struct rb_pilot *pilot, uint32_t microbatch,
                       const struct rb_flight **ret_flight, struct rb_why *why);

/* No microbatch is under way any more. */
void rb_flights_land(struct rb_model *model);
void rb_flights_free(struct rb_model *model);

/* Why the passes of flights are not played although they might be (rb_program_refused); NULL:
 * nothing is wrong. */
const char *rb_flights_refused(const struct rb_model *model);

#endif
