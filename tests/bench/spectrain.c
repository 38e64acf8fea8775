/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous pipelines in one process, a thread a stage: what the schedules learn, how well they
 * predict weights, and by how many updates.  tests/bench/spectrain.py runs it and makes the tables.
 *
 * usage: spectrain FOLDER JOB.yaml STAGES [errors]
 *
 * FOLDER has the files that the job file names.  The threads run what workers run: plans, links,
 * laps, votes.  Prints a line a step: number, loss.  errors: instead, a line for each stage and
 * pass, forward and backward: how many passes, and the medians over steps after the first quarter
 * of |predicted - actual|, |stale - actual| and the number of updates by which weights were
 * predicted. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"
#include "proto/spec.h"
#include "tests/worker/crew.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PENDING = 128 };

/* A pass whose weights are to be compared with those that it aimed at. */
struct aim {
    bool open, back;
    uint32_t version, ahead; /* of the lap */
    float *predicted, *stale;
};

/* What is recorded of a stage. */
struct stage {
    struct aim aims[PENDING];
    double *found[2][3]; /* back: predicted, stale, ahead */
    size_t n[2];
};

static void check(int err, const struct rb_why *why)
{
    if (!err)
        return;
    fprintf(stderr, "spectrain: %s\n", why->text);
    exit(1);
}

/* ---- Compiling -------------------------------------------------------------------------------*/

static void keep(const struct crew *crew, const char *name, const ProtobufCMessage *message)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", crew->folder, name);
    size_t size = protobuf_c_message_get_packed_size(message);
    RB_CLEANUP(rb_freep) uint8_t *bytes = rb_alloc(size + 1);
    struct rb_why why;

    protobuf_c_message_pack(message, bytes);
    check(rb_file_write(path, bytes, size, &why), &why);
}

/* FOLDER/model, plan, weights; the steps. */
static int64_t compile(const struct crew *crew, const char *job_path)
{
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/weights.safetensors", crew->folder);
    struct rb_compiled compiled;
    Rb__JobFile *job;
    Rb__Plan *plan;
    struct rb_why why;
    int64_t steps;
    int err;

    check(rb_spec_read(job_path, NULL, 0, &job, &why), &why);
    check(rb_compile(job->spec, rb_device_numeric_class("cpu"), &compiled, &why), &why);
    err = crew->size > 1 ? rb_pipeline_plan(compiled.model, crew->size, crew->size, &plan, &why)
                         : rb_schedule_data(compiled.model, 1, &plan, &why);
    check(err, &why);
    keep(crew, "model", &compiled.model->base);
    keep(crew, "plan", &plan->base);
    check(rb_file_write(weights, compiled.weights.data, compiled.weights.size, &why), &why);
    steps = compiled.model->steps;
    rb__plan__free_unpacked(plan, NULL);
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(job, NULL);
    return steps;
}

/* ---- How well weights are predicted ----------------------------------------------------------*/

/* The distance of two sets of weights over the blocks of this stage. */
static double distance(const struct rb_model *model, const float *a, const float *b)
{
    const Rb__Model *message = model->message;
    double squares = 0;

    for (size_t k = 0; k < message->n_blocks; k++) {
        const Rb__Block *block = message->blocks[k];

        for (uint64_t i = block->first; model->lap->mine[k] && i < block->first + block->count; i++)
            squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return sqrt(squares);
}

/* Weights have reached a version: compare the passes that aimed at it. */
static void settle(struct stage *stage, const struct rb_model *model)
{
    const struct rb_lap *lap = model->lap;

    for (int i = 0; i < PENDING; i++) {
        struct aim *aim = &stage->aims[i];
        size_t *n = &stage->n[aim->back];
        double **found = stage->found[aim->back];

        if (!aim->open || aim->version + aim->ahead != lap->updated)
            continue;
        for (int k = 0; k < 3 && *n % 1024 == 0; k++)
            found[k] = rb_realloc(found[k], (*n + 1024) * sizeof(double));
        found[0][*n] = distance(model, aim->predicted, lap->work.w);
        found[1][*n] = distance(model, aim->stale, lap->work.w);
        found[2][(*n)++] = aim->ahead;
        aim->open = false;
    }
}

static void take_aim(const struct rb_lap_pass *pass, struct aim *aim)
{
    size_t bytes = pass->model->state.elements * sizeof(float);

    if (!aim->predicted) {
        aim->predicted = rb_alloc(bytes);
        aim->stale = rb_alloc(bytes);
    }
    aim->open = true;
    aim->back = pass->back;
    aim->version = pass->version;
    aim->ahead = pass->ahead;
    memcpy(aim->predicted, pass->weights, bytes);
    memcpy(aim->stale, pass->model->lap->work.w, bytes);
}

static void watch(struct crew_rank *rank, const struct rb_lap_pass *pass)
{
    const struct rb_model *model = rank->model;
    struct stage *stage = rank->own;
    int i = 0;

    for (int k = 0; k < PENDING && !pass->step && !pass->back; k++)
        stage->aims[k].open = false; /* a lap begins */
    settle(stage, model);
    if (!pass->ahead || model->state.level + pass->step < model->message->steps / 4)
        return;
    while (i < PENDING && stage->aims[i].open)
        i++;
    if (i < PENDING)
        take_aim(pass, &stage->aims[i]);
}

/* ---- What is learned ------------------------------------------------------------------------*/

static double mean(double loss, int64_t count)
{
    return count > 0 ? loss / (double)count : NAN;
}

/* crew->owner: losses, by step. */
static void note_loss(struct crew_rank *rank, const struct rb_step_result *result)
{
    const struct rb_lap *lap = rank->model->lap;
    double *losses = rank->crew->owner;

    if (rank->rank)
        return;
    if (!result->lap)
        losses[rank->model->state.level - 1] = mean(result->decision.loss, result->decision.count);
    for (uint32_t s = 0; result->lap && s < lap->steps; s++)
        losses[lap->from + s] = mean(lap->rows[s].loss, lap->rows[s].count);
}

/* ---- The whole ------------------------------------------------------------------------------*/

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return n ? values[n / 2] : 0;
}

static void print_errors(const struct stage *stages, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        for (int back = 0; back < 2; back++)
            if (stages[k].n[back])
                printf("%u %s %zu %.6g %.6g %g\n", k, back ? "backward" : "forward",
                       stages[k].n[back], median(stages[k].found[back][0], stages[k].n[back]),
                       median(stages[k].found[back][1], stages[k].n[back]),
                       median(stages[k].found[back][2], stages[k].n[back]));
}

int main(int argc, char **argv)
{
    static struct stage stages[CREW_MOST];
    static struct crew crew;
    struct rb_why why;
    bool errors = argc > 4;
    double *losses;
    int64_t steps;

    if (argc < 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > CREW_MOST) {
        fprintf(stderr, "usage: %s FOLDER JOB.yaml STAGES [errors]\n", argv[0]);
        return 2;
    }
    crew.folder = argv[1];
    crew.size = (uint32_t)atoi(argv[3]);
    steps = compile(&crew, argv[2]);
    crew.owner = losses = rb_alloc((size_t)steps * sizeof *losses);
    crew.stepped = note_loss;
    crew.watch = errors ? watch : NULL;
    for (uint32_t r = 0; r < crew.size; r++)
        crew.ranks[r].own = &stages[r];
    check(crew_run(&crew, &why), &why);
    if (errors)
        print_errors(stages, crew.size);
    for (int64_t s = 0; !errors && s < steps; s++)
        printf("%lld %.6g\n", (long long)s + 1, losses[s]);
    crew_done(&crew);
    free(losses);
    return 0;
}
