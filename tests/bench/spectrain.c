/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous pipelines in one process, a thread a stage: what the schedules learn, how well
 * weights are predicted, and by how many updates.  tests/bench/spectrain.py runs it and makes the
 * tables.
 *
 * usage: spectrain FOLDER JOB.yaml STAGES [errors]
 *
 * FOLDER has what the job file names.  The threads run what workers run: plans, links, laps, votes.
 * Prints a line a step: number, loss.  errors: instead, a line for each stage and pass, forward and
 * backward: how many, and the medians over steps behind the first quarter of |predicted - actual|,
 * |stale - actual| and the updates that weights were predicted. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"
#include "proto/spec.h"
#include "worker/configuration.h"
#include "worker/join/opening.h"
#include "worker/lap.h"
#include "worker/step.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, PENDING = 128 };

/* A pass whose weights are to be compared with those that it aimed at. */
struct aim {
    bool open, back;
    uint32_t version, ahead; /* of the lap */
    float *predicted, *stale;
};

struct rank {
    struct crew *crew;
    uint32_t rank;
    struct rb_listener *listener;
    struct rb_model *model;
    struct rb_configuration *configuration;
    struct aim aims[PENDING];
    double *found[2][3]; /* back: predicted, stale, ahead */
    size_t n[2];
};

struct crew {
    const char *folder;
    uint32_t size;
    int64_t steps;
    bool errors;
    char paths[MOST][160], addresses[MOST][176];
    struct rank ranks[MOST];
    double *losses; /* by step */
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

static void compile(struct crew *crew, const char *job_path)
{
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/weights", crew->folder);
    struct rb_compiled compiled;
    Rb__JobFile *job;
    Rb__Plan *plan;
    struct rb_why why;
    int err;

    check(rb_spec_read(job_path, NULL, 0, &job, &why), &why);
    check(rb_compile(job->spec, rb_device_numeric_class("cpu"), &compiled, &why), &why);
    err = crew->size > 1 ? rb_pipeline_plan(compiled.model, crew->size, crew->size, &plan, &why)
                         : rb_schedule_data(compiled.model, 1, &plan, &why);
    check(err, &why);
    keep(crew, "model", &compiled.model->base);
    keep(crew, "plan", &plan->base);
    check(rb_file_write(weights, compiled.weights.data, compiled.weights.size, &why), &why);
    crew->steps = compiled.model->steps;
    rb__plan__free_unpacked(plan, NULL);
    rb_compiled_done(&compiled);
    rb__job_file__free_unpacked(job, NULL);
}

/* ---- How well weights are predicted ----------------------------------------------------------*/

/* Over the blocks of this stage. */
static double distance(const struct rank *one, const float *a, const float *b)
{
    const Rb__Model *message = one->model->message;
    double squares = 0;

    for (size_t k = 0; k < message->n_blocks; k++) {
        const Rb__Block *block = message->blocks[k];

        for (uint64_t i = block->first; one->model->lap->mine[k] && i < block->first + block->count;
             i++)
            squares += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    }
    return sqrt(squares);
}

/* The weights have come to `updated`: who aimed at that? */
static void settle(struct rank *one)
{
    const struct rb_lap *lap = one->model->lap;

    for (int i = 0; i < PENDING; i++) {
        struct aim *aim = &one->aims[i];
        size_t *n = &one->n[aim->back];

        if (!aim->open || aim->version + aim->ahead != lap->updated)
            continue;
        for (int k = 0; k < 3; k++)
            if (*n % 1024 == 0)
                one->found[aim->back][k] =
                    rb_realloc(one->found[aim->back][k], (*n + 1024) * sizeof(double));
        one->found[aim->back][0][*n] = distance(one, aim->predicted, lap->work.w);
        one->found[aim->back][1][*n] = distance(one, aim->stale, lap->work.w);
        one->found[aim->back][2][(*n)++] = aim->ahead;
        aim->open = false;
    }
}

static void watch(const struct rb_lap_pass *pass, void *owner)
{
    struct rank *one = owner;
    const struct rb_lap *lap = one->model->lap;
    size_t bytes = lap->work.elements * sizeof(float);
    int i = 0;

    if (!one->crew->errors)
        return;
    if (!lap->updated) /* a lap begins: nobody aims beyond its end */
        for (int k = 0; k < PENDING && !pass->step && !pass->back; k++)
            one->aims[k].open = false;
    settle(one);
    if (!pass->ahead || one->model->state.level + pass->step < one->crew->steps / 4)
        return;
    while (i < PENDING && one->aims[i].open)
        i++;
    if (i == PENDING)
        return;
    struct aim *aim = &one->aims[i];

    if (!aim->predicted) {
        aim->predicted = rb_alloc(bytes);
        aim->stale = rb_alloc(bytes);
    }
    aim->open = true;
    aim->back = pass->back;
    aim->version = pass->version;
    aim->ahead = pass->ahead;
    memcpy(aim->predicted, pass->weights, bytes);
    memcpy(aim->stale, lap->work.w, bytes);
}

/* ---- Running ---------------------------------------------------------------------------------*/

static void not_ready(struct rb_vote_ready *ret_ready, void *owner)
{
    (void)owner;
    *ret_ready = (struct rb_vote_ready){0};
}

static void no_change(void *owner)
{
    (void)owner;
}

static bool reads_all(void *owner)
{
    (void)owner;
    return true;
}

static void join(struct rank *one)
{
    struct crew *crew = one->crew;
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/model", crew->folder);
    RB_CLEANUP(rb_freep) char *plan = rb_format("%s/plan", crew->folder);
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/weights", crew->folder);
    Rb__Configure order = RB__CONFIGURE__INIT;
    Rb__Peer peers[MOST], *members[MOST];
    char *addresses[MOST], names[MOST][8];
    struct rb_why why;
    uint64_t bytes;

    for (uint32_t r = 0; r < crew->size; r++) {
        rb__peer__init(&peers[r]);
        snprintf(names[r], sizeof names[r], "%u", r);
        peers[r].worker = names[r];
        addresses[r] = crew->addresses[r];
        peers[r].addresses = &addresses[r];
        peers[r].n_addresses = 1;
        members[r] = &peers[r];
    }
    order.number = 1;
    order.rank = one->rank;
    order.n_members = crew->size;
    order.members = members;
    order.digest = (char *)"";
    order.model_path = model;
    order.plan_path = plan;
    order.restore = weights;
    check(rb_model_load(model, "cpu", 0, &one->model, &why), &why);
    check(rb_configuration_read(&order, one->model->message, &one->configuration, &why), &why);
    check(rb_configuration_meet(one->configuration, &order, "bench", one->listener, 20000, NULL,
                                &why),
          &why);
    check(rb_opening_run(one->model, one->configuration, &bytes, &why), &why);
}

static double mean(double loss, int64_t count)
{
    return count > 0 ? loss / (double)count : NAN;
}

static void *run(void *context)
{
    static const atomic_bool never;
    struct rank *one = context;
    struct crew *crew = one->crew;
    struct rb_step step = {
        .stop = &never,
        .ready = not_ready,
        .changing = no_change,
        .reads_all = reads_all,
        .watch = watch,
        .owner = one,
    };
    struct rb_step_result result;
    struct rb_why why;

    join(one);
    step.model = one->model;
    step.configuration = one->configuration;
    while (one->model->state.level < crew->steps) {
        const struct rb_lap *lap;

        check(rb_step_run(&step, &result, &why), &why);
        lap = one->model->lap;
        if (one->rank)
            continue;
        if (!result.lap)
            crew->losses[one->model->state.level - 1] =
                mean(result.decision.loss, result.decision.count);
        for (uint32_t s = 0; result.lap && s < lap->steps; s++)
            crew->losses[lap->from + s] = mean(lap->rows[s].loss, lap->rows[s].count);
    }
    return NULL;
}

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

static void print(struct crew *crew)
{
    for (int64_t s = 0; !crew->errors && s < crew->steps; s++)
        printf("%lld %.6g\n", (long long)s + 1, crew->losses[s]);
    for (uint32_t r = 0; crew->errors && r < crew->size; r++)
        for (int back = 0; back < 2; back++) {
            struct rank *one = &crew->ranks[r];

            if (one->n[back])
                printf("%u %s %zu %.6g %.6g %g\n", r, back ? "backward" : "forward", one->n[back],
                       median(one->found[back][0], one->n[back]),
                       median(one->found[back][1], one->n[back]),
                       median(one->found[back][2], one->n[back]));
        }
}

int main(int argc, char **argv)
{
    static struct crew crew;
    pthread_t threads[MOST];
    struct rb_why why;

    if (argc < 4 || atoi(argv[3]) < 1 || atoi(argv[3]) > MOST) {
        fprintf(stderr, "usage: %s FOLDER JOB.yaml STAGES [errors]\n", argv[0]);
        return 2;
    }
    crew.folder = argv[1];
    crew.size = (uint32_t)atoi(argv[3]);
    crew.errors = argc > 4;
    compile(&crew, argv[2]);
    crew.losses = rb_alloc((size_t)crew.steps * sizeof *crew.losses);
    for (uint32_t r = 0; r < crew.size; r++) {
        snprintf(crew.paths[r], sizeof crew.paths[r], "%s/peer%u", crew.folder, r);
        snprintf(crew.addresses[r], sizeof crew.addresses[r], "unix:%s", crew.paths[r]);
        crew.ranks[r] = (struct rank){.crew = &crew, .rank = r};
        check(rb_listener_open(crew.paths[r], NULL, &crew.ranks[r].listener, &why), &why);
    }
    for (uint32_t r = 0; r < crew.size; r++)
        if (pthread_create(&threads[r], NULL, run, &crew.ranks[r]))
            return 1;
    for (uint32_t r = 0; r < crew.size; r++)
        pthread_join(threads[r], NULL);
    print(&crew);
    return 0;
}
