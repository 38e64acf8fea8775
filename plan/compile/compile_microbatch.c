/* SPDX-License-Identifier: Apache-2.0 */
/* How large a microbatch is, and the batch sizes that follow from it. */
#include "plan/compile/compile_inside.h"

#include "base/arena.h"
#include "graph/train.h"
#include "plan/compile/laps.h"
#include "plan/compile/lower.h"

#include <inttypes.h>
#include <stdio.h>

enum { MOST_MICROBATCHES = 1 << 20 };

/* An automatic microbatch is halved until its activations fit: many small microbatches cost less
 * than a device that cannot hold one. */
static const uint64_t arena_limit = UINT64_C(1) << 30;

/* From the job file alone: at least devices.max microbatches where the batch allows. */
static int first_micro_batch(const struct rb_compile_work *work, int64_t *ret_micro_batch)
{
    const Rb__TrainSpec *train = work->spec->train;
    int64_t fixed = work->info.fixed_batch, most = work->spec->devices->max;
    int64_t lap = rb_laps_micro_batch(work->spec);

    if (fixed > 0 && lap > 0 && (fixed > lap || (fixed < lap && lap == train->global_batch)))
        return rb_why_set(work->why, RB_EINVAL,
                          "spec.parallel.schedule: '%s' needs microbatches of %" PRId64
                          ", but the model was exported for batches of %" PRId64
                          " only; export it with a dynamic first axis",
                          work->spec->parallel->schedule, lap, fixed);
    if (fixed > 0) {
        if (train->has_micro_batch && train->micro_batch != fixed)
            return rb_why_set(work->why, RB_EINVAL,
                              "spec.train.microBatch: %" PRId64 ", but the model was exported for "
                              "batches of %" PRId64 " only; export it with a dynamic first axis",
                              train->micro_batch, fixed);
        if (train->global_batch % fixed)
            return rb_why_set(work->why, RB_EINVAL,
                              "spec.train.globalBatch: %" PRId64 " is no multiple of %" PRId64
                              ", the only batch that the model was exported for; export it with a "
                              "dynamic first axis",
                              train->global_batch, fixed);
        *ret_micro_batch = fixed;
        return 0;
    }
    *ret_micro_batch = train->global_batch / (most > 0 ? most : 1);
    if (*ret_micro_batch < 1)
        *ret_micro_batch = 1;
    if (lap > 0)
        *ret_micro_batch = lap;
    if (train->has_micro_batch)
        *ret_micro_batch = train->micro_batch;
    if (*ret_micro_batch > train->global_batch)
        return rb_why_set(work->why, RB_EINVAL,
                          "spec.train.microBatch: %" PRId64 " is more than globalBatch, %" PRId64,
                          *ret_micro_batch, train->global_batch);
    return 0;
}

static Rb__Model *new_model(void)
{
    Rb__Model *model = rb_alloc(sizeof(*model));

    rb__model__init(model);
    model->format = 1;
    return model;
}

/* The training graph of a whole microbatch and, with it, the state and the first program. */
static int add_first_program(struct rb_compile_work *work, int64_t batch)
{
    struct rb_why *why = work->why;
    char name[48];
    int err = rb_compile_graph(work, batch, true, rb_source_info(work->train), &work->graph);

    if (err)
        return err;
    snprintf(name, sizeof(name), "train b=%" PRId64, batch);
    work->model = new_model();
    err = rb_lower_variables(work->graph, work->model, why);
    return err ? err : rb_lower_program(work->graph, name, work->model, why);
}

int rb_compile_microbatch(struct rb_compile_work *work, int64_t *ret_micro_batch)
{
    bool automatic = !work->spec->train->has_micro_batch && work->info.fixed_batch <= 0 &&
                     !rb_laps_micro_batch(work->spec);
    int64_t batch = 1;
    int err = first_micro_batch(work, &batch);

    while (!err) {
        err = add_first_program(work, batch);
        if (err || !automatic || batch == 1 || work->model->programs[0]->arena_bytes <= arena_limit)
            break;
        rb_graph_free(RB_TAKE(work->graph));
        rb__model__free_unpacked(RB_TAKE(work->model), NULL);
        batch = (batch + 1) / 2;
    }
    if (!err)
        rb_compile_judge_loss(work);
    if (!err && (work->spec->train->global_batch - 1) / batch >= MOST_MICROBATCHES)
        err = rb_why_set(work->why, RB_ELIMIT,
                         "spec.train.globalBatch: %" PRId64 " samples in microbatches of %" PRId64
                         " are more than %d microbatches",
                         work->spec->train->global_batch, batch, MOST_MICROBATCHES);
    *ret_micro_batch = batch;
    return err;
}

int rb_compile_add_others(struct rb_compile_work *work, int64_t batch)
{
    int64_t rest = work->spec->train->global_batch % batch, samples = 0;
    int err = 0;

    if (rest)
        err = rb_compile_add(work, rest, true);
    if (work->eval)
        samples = rb_source_info(work->eval)->samples;
    if (!err && samples >= batch)
        err = rb_compile_add(work, batch, false);
    if (!err && samples % batch && work->info.fixed_batch <= 0)
        err = rb_compile_add(work, samples % batch, false);
    return err;
}
