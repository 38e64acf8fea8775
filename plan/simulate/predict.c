/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/predict_inside.h"

#include "base/arena.h"
#include "plan/replicas.h"
#include "plan/schedule.h"
#include "proto/views.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum {
    MOST_TASKS = 4096, /* above so many microbatches, a rank's are one task */
    SMALL = 8 * 1024,  /* bytes up to which each rank sends to all: coll/sum.c */
};

const char *rb_predict_kind_text(int kind)
{
    static const char *const words[] = {
#define X(name, text) text,
        RB_PREDICT_KINDS(X)
#undef X
    };

    return kind >= 0 && kind < RB_PREDICT_COUNT ? words[kind] : "";
}

/* A sum that another core has just written comes out of that core's cache while that core updates
 * too: reading it takes as long as reading so many of the rank's own, as measured
 * (tests/bench/predict.py). */
static const double looked = 3.5;

/* ---- A step ----------------------------------------------------------------------------------*/

static size_t whole_program(const struct rb_predict_how *how)
{
    return how->recomputes ? rb_cost_find(how->model, how->model->micro_batch, true) : 0;
}

/* The program of the last microbatch, which may be smaller. */
static size_t last_program(const struct rb_predict_how *how)
{
    int64_t rest = how->model->global_batch % how->model->micro_batch;

    return rest ? rb_cost_find(how->model, rest, how->recomputes) : whole_program(how);
}

static struct rb_cost plus(struct rb_cost a, struct rb_cost b)
{
    return (struct rb_cost){a.seconds + b.seconds, a.bytes + b.bytes};
}

static struct rb_cost microbatch(const struct rb_predict_how *how,
                                 const struct rb_cluster_device *device, size_t p, bool first)
{
    return plus(rb_cost_program(how->model, p, device, how->profile),
                rb_cost_sums(rb_cost_sums_bytes(how->model, p, first), device, how->profile));
}

/* Most devices are like the one before, so equal times are found once. */
struct times {
    const struct rb_cluster_device *device; /* NULL: of none yet */
    struct rb_cost first, other;            /* microbatches of a rank */
};

static void time_device(const struct rb_predict_how *how, uint32_t rank, struct times *times)
{
    const struct rb_cluster_device *device = &how->cluster->devices[rank];

    if (times->device && rb_cost_alike(times->device, device))
        return;
    *times = (struct times){device, microbatch(how, device, whole_program(how), true),
                            microbatch(how, device, whole_program(how), false)};
}

static void add_microbatches(struct rb_predict_tasks *tasks, uint32_t rank, uint32_t first,
                             uint32_t total, const struct times *times)
{
    const struct rb_predict_how *how = tasks->how;
    uint32_t share = how->shares[rank];
    double part = rb_cost_together(share, times->device, how->profile);
    struct rb_cost all = {0};

    for (uint32_t m = first; m < first + share; m++) {
        struct rb_cost this = m == first ? times->first : times->other;

        if (m + 1 == total)
            this = microbatch(how, times->device, last_program(how), m == first);
        this.seconds *= part;
        all = plus(all, this);
        if (total <= MOST_TASKS)
            rb_predict_work(tasks, rank, RB_PREDICT_COMPUTE, m, this);
    }
    if (total > MOST_TASKS && share)
        rb_predict_work(tasks, rank, RB_PREDICT_COMPUTE, first, all);
}

/* Bytes that a rank sends for a sum of so many: all of them to each rank, or a part to each and
 * back. */
static double sum_bytes(const struct rb_predict_how *how, double bytes, int *ret_crossings)
{
    double n = how->ranks;

    *ret_crossings = 1;
    if (how->ranks == 2 || bytes <= SMALL)
        return (n - 1) * bytes;
    *ret_crossings = 2;
    return 2 * (n - 1) / n * bytes;
}

static bool sharded(const struct rb_predict_how *how)
{
    return how->copies && how->ranks > how->copies && how->model->n_blocks;
}

/* A plan whose shards say which rank holds which blocks; NULL: the model's sizes make no sense. */
static Rb__Plan *new_shards(const struct rb_predict_how *how)
{
    RB_CLEANUP(rb_freep) uint32_t *nodes = rb_alloc(how->ranks * sizeof *nodes);
    struct rb_replicas where = {
        .copies = how->copies, .blocks = how->model->n_blocks, .ranks = how->ranks, .nodes = nodes};
    Rb__Plan *plan = NULL;

    for (uint32_t r = 0; r < how->ranks; r++)
        nodes[r] = how->cluster->devices[r].node;
    if (rb_schedule_data(how->model, how->ranks, &plan, NULL))
        return NULL;
    rb_replicas_place(&where, how->model, plan);
    return plan;
}

/* Each shard goes from all ranks to those that hold it, all shards at once. */
static void find_flows(struct rb_predict_tasks *tasks, const Rb__Plan *plan)
{
    Rb__Block *const *blocks = tasks->how->model->blocks;
    double all = 0;

    rb_predict_fill(tasks, 0);
    for (size_t i = 0; i < plan->n_shards; i++) {
        const Rb__Shard *shard = plan->shards[i];
        const Rb__Block *last = blocks[shard->first_block + shard->n_blocks - 1];
        double bytes =
            4.0 * (double)(last->first + last->count - blocks[shard->first_block]->first);

        all += bytes * (double)shard->n_ranks;
        for (size_t r = 0; r < shard->n_ranks; r++)
            tasks->out[shard->ranks[r]] += bytes; /* held, for now */
    }
    for (uint32_t r = 0; r < tasks->how->ranks; r++) {
        double received = tasks->out[r] * (tasks->how->ranks - 1);

        tasks->out[r] = all - tasks->out[r];
        tasks->busy[r] = fmax(tasks->out[r], received);
    }
}

/* Does each rank read the others' sums when it updates? */
static bool looks(const struct rb_predict_how *how)
{
    const struct rb_cluster_device *devices = how->cluster->devices;

    if (how->ranks < 2 || how->ranks > RB_VIEWS_RANKS || sharded(how))
        return false;
    for (uint32_t r = 0; r < how->ranks; r++)
        if (strcmp(devices[r].kind, "cpu") || devices[r].node != devices[0].node)
            return false;
    return true;
}

static void add_sums(struct rb_predict_tasks *tasks)
{
    const Rb__Model *model = tasks->how->model;
    Rb__Plan *plan = sharded(tasks->how) ? new_shards(tasks->how) : NULL;

    if (plan) {
        find_flows(tasks, plan);
        rb_predict_exchange(tasks, RB_PREDICT_SUM, 0, 1);
        rb__plan__free_unpacked(plan, NULL);
        return;
    }
    if (tasks->how->ranks < 2 || looks(tasks->how))
        return;
    for (size_t b = 0; b < model->n_buckets; b++) {
        int crossings;

        rb_predict_fill(tasks,
                        sum_bytes(tasks->how, 4.0 * (double)model->buckets[b]->count, &crossings));
        rb_predict_exchange(tasks, RB_PREDICT_SUM, (uint32_t)b, crossings);
    }
}

static void add_vote(struct rb_predict_tasks *tasks, uint32_t total)
{
    enum { PER_MICROBATCH = 24, PER_VARIABLE = 8 };
    double record =
        PER_MICROBATCH * (double)total + PER_VARIABLE * (double)tasks->how->model->n_variables;

    if (tasks->how->ranks < 2)
        return;
    rb_predict_fill(tasks, record * (tasks->how->ranks - 1));
    rb_predict_exchange(tasks, RB_PREDICT_VOTE, 0, 1);
}

/* Elements of the state that a rank holds. */
static double held(const struct rb_predict_how *how)
{
    double all = (double)how->model->state_elements;

    return sharded(how) ? all * how->copies / how->ranks : all;
}

static void add_update(struct rb_predict_tasks *tasks)
{
    const struct rb_predict_how *how = tasks->how;
    double elements = (double)how->model->state_elements, n = how->ranks;
    double others = looks(how) ? looked * 4 * elements * (n - 1) : 0; /* bytes of their sums */

    for (uint32_t r = 0; r < how->ranks; r++) {
        const struct rb_cluster_device *device = &how->cluster->devices[r];
        struct rb_cost cost = rb_cost_update(how->model, held(how), device, how->profile);

        if (others > 0)
            cost = plus(cost, rb_cost_bytes(others, device, how->profile));
        rb_predict_work(tasks, r, RB_PREDICT_UPDATE, 0, cost);
    }
    if (!sharded(how))
        return;
    rb_predict_fill(tasks,
                    4 * elements * (n - how->copies) / n); /* by primaries, to ranks that lack it */
    rb_predict_exchange(tasks, RB_PREDICT_GATHER, 0, 1);
}

/* ---- What comes out --------------------------------------------------------------------------*/

static void read_times(const struct rb_predict_tasks *tasks, struct rb_predict_step *ret)
{
    const struct rb_simulate *simulate = tasks->simulate;
    double ends[RB_PREDICT_COUNT] = {0}, busy = 0, at;

    for (size_t i = 0; i < rb_simulate_count(simulate); i++) {
        const struct rb_simulate_task *task = rb_simulate_task(simulate, i);

        ends[task->kind] = fmax(ends[task->kind], task->end);
        if (task->slot >= 0)
            busy += task->end - task->start;
    }
    ret->computing = at = ends[RB_PREDICT_COMPUTE];
    at = fmax(at, fmax(ends[RB_PREDICT_SUM], ends[RB_PREDICT_VOTE]));
    ret->summing = at - ret->computing;
    ret->updating = fmax(0, ends[RB_PREDICT_UPDATE] - at);
    ret->gathering = fmax(0, ends[RB_PREDICT_GATHER] - fmax(at, ends[RB_PREDICT_UPDATE]));
    ret->idle = ret->seconds > 0 ? fmax(0, 1 - busy / tasks->how->ranks / ret->seconds) : 0;
    for (uint32_t r = 0; r < tasks->how->ranks; r++)
        ret->sent = fmax(ret->sent, tasks->sent[r]);
}

static int check_shares(const struct rb_predict_how *how, uint32_t total, struct rb_why *why)
{
    uint64_t given = 0;

    if (!how->ranks || how->ranks > how->cluster->n_devices)
        return rb_why_set(why, RB_EINVAL,
                          "%" PRIu32 " devices are asked for, the cluster has %" PRIu32, how->ranks,
                          how->cluster->n_devices);
    for (uint32_t r = 0; r < how->ranks; r++)
        given += how->shares[r];
    if (given != total)
        return rb_why_set(why, RB_EINVAL, "%" PRIu64 " microbatches are handed out of %" PRIu32,
                          given, total);
    return 0;
}

int rb_predict_data(const struct rb_predict_how *how, struct rb_predict_step *ret_step,
                    struct rb_why *why)
{
    struct rb_predict_step result = {0};
    struct rb_predict_tasks tasks = {.how = how};
    struct times times = {NULL};
    uint32_t total = rb_schedule_microbatches(how->model), next = 0;
    int err = check_shares(how, total, why);

    if (err)
        return err;
    rb_predict_open(&tasks);
    for (uint32_t r = 0; r < how->ranks; next += how->shares[r++]) {
        time_device(how, r, &times);
        add_microbatches(&tasks, r, next, total, &times);
    }
    add_sums(&tasks);
    add_vote(&tasks, total);
    add_update(&tasks);
    err = rb_simulate_run(tasks.simulate, &result.seconds, why);
    if (err) {
        rb_simulate_free(tasks.simulate);
    } else {
        read_times(&tasks, &result);
        result.simulate = tasks.simulate;
        *ret_step = result;
    }
    rb_predict_close(&tasks);
    return err;
}

double rb_predict_microbatch(const Rb__Model *model, const struct rb_cluster_device *device,
                             const struct rb_cost_profile *profile)
{
    struct rb_cost program = rb_cost_program(model, 0, device, profile);
    struct rb_cost sums = rb_cost_sums(rb_cost_sums_bytes(model, 0, false), device, profile);

    return program.seconds + sums.seconds;
}
