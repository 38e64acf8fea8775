/* SPDX-License-Identifier: Apache-2.0 */
/* The loaded model: programs ready to run, data open, memory for state and sums.
 *
 * Model (a file) > [model] > step, evaluate, opening, checkpoint
 *
 * Loading happens once in a worker's life, on the preparing thread; from then on the step thread
 * owns it. */
#ifndef RB_WORKER_MODEL_H
#define RB_WORKER_MODEL_H

#include "data/source.h"
#include "worker/batch.h"
#include "worker/program.h"
#include "worker/state.h"

/* A program of the model on this device. */
struct rb_runner {
    const Rb__Program *message;
    struct rb_program *program;
    struct rb_batch_slots slots;
    const Rb__Contribution **contributions; /* by when they are ready */
};

/* A part of the evaluation: as many samples as one program takes. */
struct rb_chunk {
    struct rb_batch batch;
    struct rb_runner *runner;
};

struct rb_model {
    Rb__Model *message;
    struct rb_device *device;
    struct rb_source *train, *eval; /* eval: NULL where there is none */
    struct rb_state state;
    void *arena, *constants;                /* of all programs */
    struct rb_runner *runners;              /* by index in message->programs */
    uint32_t microbatches;                  /* of a step */
    struct rb_runner *runner, *last_runner; /* of a microbatch, and of the last one */
    struct rb_chunk *chunks;
    uint32_t n_chunks;

    /* Of an attempt: all that computing a step writes to. */
    int32_t *local, *reduced;      /* flat, as the state */
    struct rb_exponent *exponents; /* by variable: the state's, or what a redo asked for */
    int32_t *limits;               /* by variable: the largest summand */
    uint32_t *largest;             /* by variable: bits of the largest |g| */
    bool *overflow;
    bool *fresh; /* by variable: nothing has been added to its local sums, which hold anything */
    uint8_t *record; /* of the vote (worker/vote.h): which microbatches the local sums hold */
    /* The level at which an attempt was given up with its local sums whole, so that the next one
     * need not compute them again (worker/step.c); -1: none was. */
    int64_t kept;
};

/* Read `path`, open device `index` of `kind` and the data, prepare every program that training and
 * evaluation run.  RB_EINVAL and its like: bad model or data. */
int rb_model_load(const char *path, const char *kind, int index, struct rb_model **ret_model,
                  struct rb_why *why);
void rb_model_free(struct rb_model *model);

/* Everything that is used as an index or a size, checked (worker/model_check.c). */
int rb_model_check(const Rb__Model *model, struct rb_why *why);

#endif
