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
#include "worker/step/pace.h"
#include "worker/program/program.h"
#include "worker/state/state.h"

enum { RB_MODEL_ROW = 256 };

/* A program of the model on this device. */
struct rb_runner {
    const Rb__Program *message;
    struct rb_program *program;
    struct rb_batch_slots slots;
    const Rb__Contribution **contributions; /* in the order in which they are ready */
};

/* One of the microbatches that are computed at once (worker/lanes.h). */
struct rb_lane {
    struct rb_runner runner;
    void *arena; /* NULL: the model's */
    size_t bytes;
};

/* A part of the evaluation: as many samples as one program takes. */
struct rb_chunk {
    struct rb_batch batch;
    struct rb_runner *runner;
};

struct rb_flight;
struct rb_lap;
struct rb_views;

struct rb_model {
    Rb__Model *message;
    struct rb_device *device;
    struct rb_source *train, *eval; /* eval: NULL where there is none */
    struct rb_state state;
    void *arena, *constants;                /* of all programs */
    struct rb_runner *runners;              /* by index in message->programs */
    uint32_t microbatches;                  /* of a step */
    struct rb_runner *runner, *last_runner; /* of a microbatch, and of the last one */
    bool recomputes; /* whether these programs recompute (Program.recomputes) */
    struct rb_lane lanes[RB_KERNEL_EACH]; /* of `runner`, or of a part of the filters */
    uint32_t n_lanes;
    struct rb_chunk *chunks;
    uint32_t n_chunks;
    struct rb_flight *flights; /* of pipelines (worker/stages/flight.h), */
    struct rb_ways *ways; /* and between the GPUs of a pipeline (worker/stages/flight_ways.c) */
    struct rb_lap *lap;   /* of asynchronous ones (worker/stages/lap.h); NULL: none was run yet */

    /* Of an attempt: all that computing a step writes to. */
    int32_t *local, *reduced; /* flat, as the state: rb_model_sums */
    int32_t *empty;           /* the one of these two that takes no memory, where there is one */
    struct rb_views *views;   /* of the others' local sums (worker/step/views.h), or NULL */
    uint64_t word;            /* names the attempt of `local` to the readers of views */
    bool apart;               /* the sums are `local` and the views, not `reduced` */
    struct rb_exponent *exponents; /* by variable: the state's, or what a redo asked for */
    int32_t *limits;               /* by variable: the largest summand */
    uint32_t *largest; /* by variable: bits of the largest |g|; in the device's memory, */
    bool *overflow;    /* as is this, */
    bool *fresh;     /* by variable: nothing was added yet to its local sums, which hold anything */
    double *squares; /* and this: by block, of the reduced sums */
    /* Of microbatches whose results are not in the record yet; in the device's memory too. */
    struct rb_result {
        double loss;
        int64_t count, correct;
    } * results;
    /* Of the vote (worker/step/vote.h): which microbatches the local sums hold, except those whose
     * results the attempt has not received yet (worker/step/attempt_results.c). */
    uint8_t *record;
    struct rb_pace pace;
    /* The level at which an attempt was given up with its local sums whole, so that the next
     * attempt need not compute them again (worker/step/step.c); -1: there is none. */
    int64_t kept;

    /* What a crash in the middle of a vote asks for (worker/join/recovery.h). */
    struct rb_pending {
        int64_t level; /* at which all sums were there (`apart`, or reduced); -1: they were not */
        uint32_t attempt; /* in which they were summed up */
        uint32_t lap;     /* instead of sums, a whole lap of so many steps (worker/stages/lap.h) */
    } pending;
    uint32_t opened; /* the last configuration in which an opening made this state level; 0: none */
    struct rb_applied {
        uint8_t *entry;   /* what the step to the present level did (worker/join/wire.h) */
        int64_t level;    /* the present level; -1: the state came in another way */
        uint32_t attempt; /* that was committed */
        bool commit;      /* else it was skipped */
        /* The row that was reported of that step, packed: a rank that is told of the entry reports
         * the same row, so that no step is without a row when the rank that told of it dies. */
        uint8_t row[RB_MODEL_ROW];
        uint64_t row_bytes; /* 0: none yet */
        bool owed;          /* the row was not reported: its evaluation is to come */
    } applied;
};

/* Read `path`, open device `index` of `kind` and the data, get memory for state and sums.
 * RB_EINVAL and its like: bad model or data. */
int rb_model_load(const char *path, const char *kind, int index, struct rb_model **ret_model,
                  struct rb_why *why);
void rb_model_free(struct rb_model *model);

/* Zeroed memory for sums that other workers of this host may read, and its size in bytes: the sums,
 * and room behind them for worker/step/views.h.  NULL: there is no memory. */
enum { RB_MODEL_SUMS_END = 64 };
size_t rb_model_sums_bytes(const struct rb_model *model);
int32_t *rb_model_sums(const struct rb_model *model);

/* Make ready the programs that train with or without recomputation, and those of the evaluation.
 * Call it before anything runs, and where nothing is under way.  Memory that only the other
 * programs needed is given back: a CPU gives it back as untouched pages, and all programs stay
 * ready; other devices free the arena, and prepare the programs anew. */
int rb_model_use(struct rb_model *model, bool recomputes, struct rb_why *why);

/* The program that runs a microbatch of a step. */
static inline struct rb_runner *rb_model_runner(const struct rb_model *model, uint32_t microbatch)
{
    return microbatch + 1 == model->microbatches ? model->last_runner : model->runner;
}

/* How the gradient of a microbatch goes into this rank's sums of a variable, or of a slice. */
struct rb_fixed rb_model_summand(struct rb_model *model, const Rb__Contribution *contribution,
                                 uint32_t microbatch);

/* Make runner->message ready to run in `arena` on samples of `source`, with the state's weights or
 * others in the same layout. */
int rb_runner_prepare(struct rb_model *model, struct rb_runner *runner, float *weights, void *arena,
                      const struct rb_source *source, struct rb_why *why);
/* The same for training, with the state's weights and the kernels of `of`, which runs the same
 * program and must outlive `runner`. */
int rb_runner_prepare_twin(struct rb_model *model, struct rb_runner *runner,
                           const struct rb_runner *of, void *arena, struct rb_why *why);
void rb_runner_done(struct rb_runner *runner);

/* Hold only the blocks of `holds`, of the state and of reduced sums. */
void rb_model_hold(struct rb_model *model, const uint8_t *holds);

/* At a flip: hold the blocks of `holds`, and let the others linger.  RB_EINTERNAL: a block of
 * `holds` is not here. */
int rb_model_shift(struct rb_model *model, const uint8_t *holds, struct rb_why *why);
/* At the commit after the flip, or where others know of that commit: drop the lingering blocks. */
void rb_model_settle(struct rb_model *model);

/* Check everything that is used as an index or a size (worker/model_check.c). */
int rb_model_check(const Rb__Model *model, struct rb_why *why);

#endif
