/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/pipeline.h"

#include "base/arena.h"
#include "plan/simulate/predict.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* While the tasks of a step are made: by stage and microbatch, and by device. */
struct pipeline {
    const struct rb_pipeline_how *how;
    struct rb_simulate *simulate;
    int *forward, *backward;
    int *links[2]; /* slots by device, for activations and for gradients: what is sent first arrives
                      first; RB_SIMULATE_NO_SLOT: no obstacle */
    int *slots, *last;
    double *sent;
    uint32_t devices;
};

uint32_t rb_pipeline_ahead(const struct rb_pipeline_stage *stages, uint32_t n, uint32_t k)
{
    uint32_t behind = 0;

    for (uint32_t j = k + 1; j < n; j++)
        behind += stages[j].devices;
    return 1 + (behind + stages[k].devices - 1) / stages[k].devices;
}

static int *at(const struct pipeline *pipeline, int *tasks, uint32_t stage, uint32_t microbatch)
{
    return &tasks[(size_t)stage * pipeline->how->microbatches + microbatch];
}

static uint32_t first_device(const struct pipeline *pipeline, uint32_t stage)
{
    uint32_t first = 0;

    for (uint32_t k = 0; k < stage; k++)
        first += pipeline->how->stages[k].devices;
    return first;
}

static int add(struct pipeline *pipeline, uint32_t device, int kind, uint32_t number,
               double seconds)
{
    struct rb_simulate_task task = {.slot = pipeline->slots[device],
                                    .work = seconds,
                                    .rate = 1,
                                    .kind = kind,
                                    .lane = device,
                                    .number = number};
    int i = rb_simulate_add(pipeline->simulate, &task);

    if (pipeline->last[device] >= 0)
        rb_simulate_after(pipeline->simulate, i, pipeline->last[device]);
    pipeline->last[device] = i;
    return i;
}

/* What one replica does, in its order. */
static void add_replica(struct pipeline *pipeline, uint32_t k, uint32_t replica)
{
    const struct rb_pipeline_stage *stage = &pipeline->how->stages[k];
    uint32_t ahead = rb_pipeline_ahead(pipeline->how->stages, pipeline->how->n, k);
    uint32_t device = first_device(pipeline, k) + replica, r = stage->devices;
    uint32_t all = pipeline->how->microbatches, mine = 0, f = 0, b = 0;

    for (uint32_t i = replica; i < all; i += r)
        mine++;
    while (b < mine) {
        bool goes = f < mine && f - b < ahead;
        uint32_t i = replica + (goes ? f++ : b++) * r;

        if (goes)
            *at(pipeline, pipeline->forward, k, i) =
                add(pipeline, device, RB_PREDICT_COMPUTE, i, stage->forward);
        else
            *at(pipeline, pipeline->backward, k, i) =
                add(pipeline, device, RB_PREDICT_BACKWARD, i, stage->backward);
    }
}

/* `task` begins when `before`, on another device, has ended and its bytes have come. */
static void send(struct pipeline *pipeline, int task, int before, uint32_t from, int way,
                 double bytes)
{
    struct rb_simulate_task transfer = {.slot = pipeline->links[way][from],
                                        .latency = pipeline->how->latency,
                                        .work = bytes,
                                        .rate = pipeline->how->bandwidth,
                                        .kind = RB_PREDICT_MEET};
    int i = rb_simulate_add(pipeline->simulate, &transfer);

    rb_simulate_after(pipeline->simulate, i, before);
    rb_simulate_after(pipeline->simulate, task, i);
    pipeline->sent[from] += bytes;
}

static void connect(struct pipeline *pipeline)
{
    const struct rb_pipeline_stage *stages = pipeline->how->stages;

    for (uint32_t k = 0; k < pipeline->how->n; k++)
        for (uint32_t i = 0; i < pipeline->how->microbatches; i++) {
            int forward = *at(pipeline, pipeline->forward, k, i);
            int backward = *at(pipeline, pipeline->backward, k, i);

            if (k)
                send(pipeline, forward, *at(pipeline, pipeline->forward, k - 1, i),
                     first_device(pipeline, k - 1) + i % stages[k - 1].devices, 0,
                     stages[k - 1].activations);
            if (k + 1 < pipeline->how->n)
                send(pipeline, backward, *at(pipeline, pipeline->backward, k + 1, i),
                     first_device(pipeline, k + 1) + i % stages[k + 1].devices, 1,
                     stages[k].activations);
            else
                rb_simulate_after(pipeline->simulate, backward, forward);
        }
}

/* ---- The state -------------------------------------------------------------------------------*/

/* Devices first .. end - 1 wait for each other.  Returns the task that ends the wait. */
static int meet(struct pipeline *pipeline, uint32_t first, uint32_t end)
{
    struct rb_simulate_task meet = {.slot = RB_SIMULATE_NO_SLOT, .kind = RB_PREDICT_MEET};
    int all = rb_simulate_add(pipeline->simulate, &meet);

    for (uint32_t d = first; d < end; d++)
        if (pipeline->last[d] >= 0)
            rb_simulate_after(pipeline->simulate, all, pipeline->last[d]);
    return all;
}

/* An exchange behind a meeting.  A link carries as much each way, so its time is that of `busy`
 * bytes, no less than it sends or receives. */
static void exchange(struct pipeline *pipeline, uint32_t device, int met, int kind, double sent,
                     double busy, uint32_t crossings)
{
    struct rb_simulate_task task = {.slot = pipeline->slots[device],
                                    .latency = crossings * pipeline->how->latency,
                                    .work = busy,
                                    .rate = pipeline->how->bandwidth,
                                    .kind = kind,
                                    .lane = device};

    pipeline->last[device] = rb_simulate_add(pipeline->simulate, &task);
    rb_simulate_after(pipeline->simulate, pipeline->last[device], met);
    pipeline->sent[device] += sent;
}

/* The replicas of a stage, devices first .. first + r - 1, sum their gradients, and update. */
static void finish_stage(struct pipeline *pipeline, const struct rb_pipeline_stage *stage,
                         uint32_t first, uint32_t r)
{
    double bytes = 2.0 * (r - 1) / r * stage->weights;
    int met = meet(pipeline, first, first + r);

    for (uint32_t d = first; d < first + r; d++) {
        exchange(pipeline, d, met, RB_PREDICT_SUM, bytes, bytes, r > 1 ? 2 : 0);
        add(pipeline, d, RB_PREDICT_UPDATE, 0, stage->update);
    }
}

/* All devices send each other what they owe.  No device goes on before all are through, because
 * there is a vote. */
static void exchange_all(struct pipeline *pipeline, int kind, const double *out, const double *in,
                         uint32_t crossings)
{
    int met = meet(pipeline, 0, pipeline->devices);

    for (uint32_t d = 0; d < pipeline->devices; d++) {
        double busy = fmax(out[d], in[d]);

        exchange(pipeline, d, met, kind, out[d], busy, busy > 0 ? crossings : 0);
    }
}

static void finish_together(struct pipeline *pipeline)
{
    const struct rb_traffic *traffic = pipeline->how->traffic;
    int voted;

    exchange_all(pipeline, RB_PREDICT_SUM, traffic->sums, traffic->sums_in, traffic->crossings);
    voted = meet(pipeline, 0, pipeline->devices);
    for (uint32_t k = 0, d = 0; k < pipeline->how->n; k++)
        for (uint32_t r = 0; r < pipeline->how->stages[k].devices; r++, d++) {
            pipeline->last[d] = voted;
            add(pipeline, d, RB_PREDICT_UPDATE, 0, pipeline->how->stages[k].update);
        }
    exchange_all(pipeline, RB_PREDICT_GATHER, traffic->weights, traffic->weights_in, 1);
}

/* ---- The step --------------------------------------------------------------------------------*/

static void open_pipeline(struct pipeline *pipeline)
{
    const struct rb_pipeline_how *how = pipeline->how;
    size_t tasks = (size_t)how->n * how->microbatches + 1;
    size_t room;

    pipeline->devices = first_device(pipeline, how->n);
    room = (pipeline->devices + 1) * sizeof(int);
    pipeline->simulate = rb_simulate_new();
    pipeline->forward = rb_alloc(tasks * sizeof(int));
    pipeline->backward = rb_alloc(tasks * sizeof(int));
    pipeline->links[0] = rb_alloc(room);
    pipeline->links[1] = rb_alloc(room);
    pipeline->slots = rb_alloc(room);
    pipeline->last = rb_alloc(room);
    pipeline->sent = rb_alloc((pipeline->devices + 1) * sizeof(double));
    for (uint32_t d = 0; d < pipeline->devices; d++) {
        pipeline->slots[d] = rb_simulate_slot(pipeline->simulate);
        pipeline->last[d] = -1;
        for (int way = 0; way < 2; way++)
            pipeline->links[way][d] =
                how->bandwidth > 0 ? rb_simulate_slot(pipeline->simulate) : RB_SIMULATE_NO_SLOT;
    }
}

static void close_pipeline(struct pipeline *pipeline)
{
    free(pipeline->forward);
    free(pipeline->backward);
    free(pipeline->links[0]);
    free(pipeline->links[1]);
    free(pipeline->slots);
    free(pipeline->last);
    free(pipeline->sent);
}

int rb_pipeline_run(const struct rb_pipeline_how *how, struct rb_pipeline_step *ret_step,
                    struct rb_why *why)
{
    struct pipeline pipeline = {.how = how};
    struct rb_pipeline_step step = {0};
    double busy = 0;
    int err;

    open_pipeline(&pipeline);
    for (uint32_t k = 0; k < how->n; k++)
        for (uint32_t r = 0; r < how->stages[k].devices; r++)
            add_replica(&pipeline, k, r);
    connect(&pipeline);
    for (uint32_t k = 0; k < how->n && !how->traffic; k++)
        finish_stage(&pipeline, &how->stages[k], first_device(&pipeline, k),
                     how->stages[k].devices);
    if (how->traffic)
        finish_together(&pipeline);
    err = rb_simulate_run(pipeline.simulate, &step.seconds, why);
    for (size_t i = 0; i < rb_simulate_count(pipeline.simulate); i++) {
        const struct rb_simulate_task *task = rb_simulate_task(pipeline.simulate, i);

        if (task->slot >= 0 && task->kind != RB_PREDICT_MEET)
            busy += task->end - task->start;
    }
    for (uint32_t d = 0; d < pipeline.devices; d++) {
        step.sent = fmax(step.sent, pipeline.sent[d]);
        step.all_sent += pipeline.sent[d];
    }
    if (step.seconds > 0)
        step.idle = fmax(0, 1 - busy / pipeline.devices / step.seconds);
    step.simulate = pipeline.simulate;
    if (err)
        rb_simulate_free(pipeline.simulate);
    else
        *ret_step = step;
    close_pipeline(&pipeline);
    return err;
}
