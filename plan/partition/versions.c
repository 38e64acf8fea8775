/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/partition/versions.h"

#include "base/arena.h"
#include "plan/simulate/simulate.h"

#include <stdlib.h>

/* While a pipeline is simulated: tasks by stage and minibatch. */
struct pipeline {
    uint32_t stages, minibatches;
    struct rb_simulate *simulate;
    int *forward, *backward;
};

static int *at(const struct pipeline *pipeline, int *tasks, uint32_t stage, uint32_t minibatch)
{
    return &tasks[(size_t)stage * pipeline->minibatches + minibatch];
}

static double start_of(const struct pipeline *pipeline, int *tasks, uint32_t stage,
                       uint32_t minibatch)
{
    return rb_simulate_task(pipeline->simulate, (size_t)*at(pipeline, tasks, stage, minibatch))
        ->start;
}

static double end_of(const struct pipeline *pipeline, int *tasks, uint32_t stage,
                     uint32_t minibatch)
{
    return rb_simulate_task(pipeline->simulate, (size_t)*at(pipeline, tasks, stage, minibatch))
        ->end;
}

static void add_stage(struct pipeline *pipeline, uint32_t stage, double forward, double backward)
{
    int slot = rb_simulate_slot(pipeline->simulate), last = -1;
    uint32_t ahead = pipeline->stages - stage, f = 0, b = 0;

    while (b < pipeline->minibatches) {
        bool goes = f < pipeline->minibatches && f - b < ahead;
        struct rb_simulate_task task = {.slot = slot, .work = goes ? forward : backward, .rate = 1};
        int i = rb_simulate_add(pipeline->simulate, &task);

        if (last >= 0)
            rb_simulate_after(pipeline->simulate, i, last);
        last = i;
        if (goes)
            *at(pipeline, pipeline->forward, stage, f++) = i;
        else
            *at(pipeline, pipeline->backward, stage, b++) = i;
    }
}

static void connect(struct pipeline *pipeline)
{
    for (uint32_t k = 0; k < pipeline->stages; k++)
        for (uint32_t i = 0; i < pipeline->minibatches; i++) {
            int forward = *at(pipeline, pipeline->forward, k, i);
            int backward = *at(pipeline, pipeline->backward, k, i);

            if (k)
                rb_simulate_after(pipeline->simulate, forward,
                                  *at(pipeline, pipeline->forward, k - 1, i));
            rb_simulate_after(pipeline->simulate, backward,
                              k + 1 < pipeline->stages ? *at(pipeline, pipeline->backward, k + 1, i)
                                                       : forward);
        }
}

/* Updates of `stage` by others than `minibatch` that ended behind `after`, up to `until`. */
static uint32_t count(const struct pipeline *pipeline, uint32_t stage, uint32_t minibatch,
                      double after, double until)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pipeline->minibatches; i++) {
        double end = end_of(pipeline, pipeline->backward, stage, i);

        n += i != minibatch && end > after && end <= until;
    }
    return n;
}

static struct rb_versions count_stage(const struct pipeline *pipeline, uint32_t stage)
{
    uint32_t m = pipeline->minibatches / 2;
    double forward = start_of(pipeline, pipeline->forward, stage, m);
    double backward = start_of(pipeline, pipeline->backward, stage, m);
    double aim = end_of(pipeline, pipeline->backward, 0, m);

    return (struct rb_versions){
        .forward = count(pipeline, stage, m, forward, aim),
        .backward = count(pipeline, stage, m, backward, aim),
        .stale = count(pipeline, stage, m, forward, backward),
    };
}

/* Over the middle third of the minibatches. */
static double busy(const struct pipeline *pipeline, const double *forward, const double *backward)
{
    uint32_t from = pipeline->minibatches / 3, to = 2 * pipeline->minibatches / 3;
    double most = 0, took = end_of(pipeline, pipeline->backward, 0, to) -
                            end_of(pipeline, pipeline->backward, 0, from);

    for (uint32_t k = 0; k < pipeline->stages; k++)
        if (forward[k] + backward[k] > most)
            most = forward[k] + backward[k];
    return most * (to - from) / took;
}

int rb_versions_count(const double *forward, const double *backward, uint32_t stages,
                      struct rb_versions *ret, double *ret_busy, struct rb_why *why)
{
    struct pipeline pipeline = {.stages = stages, .minibatches = 12 * stages + 12};
    size_t tasks = (size_t)stages * pipeline.minibatches;
    double seconds;
    int err;

    pipeline.simulate = rb_simulate_new();
    pipeline.forward = rb_alloc(tasks * sizeof(int));
    pipeline.backward = rb_alloc(tasks * sizeof(int));
    for (uint32_t k = 0; k < stages; k++)
        add_stage(&pipeline, k, forward[k], backward[k]);
    connect(&pipeline);
    err = rb_simulate_run(pipeline.simulate, &seconds, why);
    for (uint32_t k = 0; !err && k < stages; k++)
        ret[k] = count_stage(&pipeline, k);
    if (!err)
        *ret_busy = busy(&pipeline, forward, backward);
    rb_simulate_free(pipeline.simulate);
    free(pipeline.forward);
    free(pipeline.backward);
    return err;
}

struct rb_versions rb_versions_paper(uint32_t stages, uint32_t stage)
{
    return (struct rb_versions){
        .forward = stage / 2 + stages - 1 - stage,
        .backward = stage / 2,
        .stale = stages - 1 - stage,
    };
}
