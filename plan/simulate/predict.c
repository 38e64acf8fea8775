/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/predict.h"

#include "base/arena.h"
#include "plan/replicas.h"
#include "plan/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum {
    MOST_TASKS = 4096, /* more microbatches than that, and a rank's are one task */
    SMALL = 8 * 1024,  /* bytes that everyone sends to everyone: coll/sum.c */
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

/* What a rank's messages to all others pass, as parts of its bytes. */
struct way {
    double inside, network, rack;
};

/* While the tasks of a step are made. */
struct step {
    const struct rb_predict_how *how;
    struct rb_simulate *simulate;
    int *slots, *inside;   /* by rank; no resource: -1, here and below */
    int *network, *memory; /* by node */
    int *racks;
    struct way *ways; /* by rank */
    int *last;        /* by rank, its newest task; -1: none */
    double latency;
    double *sent; /* by rank */
    double *out,
        *busy; /* by rank, bytes of an exchange: sent; sent or received, whichever is more */
};

/* ---- The cluster ------------------------------------------------------------------------------*/

static int new_resource(struct rb_simulate *simulate, double capacity)
{
    return capacity > 0 ? rb_simulate_resource(simulate, capacity) : -1;
}

/* Parts of the others that are on the node, in the rack, and elsewhere. */
static void find_ways(struct step *step)
{
    const struct rb_cluster *cluster = step->how->cluster;
    uint32_t ranks = step->how->ranks;
    RB_CLEANUP(rb_freep) uint32_t *on_node = rb_alloc(cluster->n_nodes * sizeof *on_node);
    RB_CLEANUP(rb_freep) uint32_t *in_rack = rb_alloc((cluster->n_racks + 1) * sizeof *in_rack);

    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t node = cluster->devices[r].node, rack = cluster->nodes[node].rack;

        on_node[node]++;
        if (rack != RB_CLUSTER_NO_RACK)
            in_rack[rack]++;
    }
    for (uint32_t r = 0; r < ranks && ranks > 1; r++) {
        uint32_t node = cluster->devices[r].node, rack = cluster->nodes[node].rack;
        double others = ranks - 1;

        step->ways[r].inside = (on_node[node] - 1) / others;
        step->ways[r].network = (ranks - on_node[node]) / others;
        if (rack != RB_CLUSTER_NO_RACK)
            step->ways[r].rack = (ranks - in_rack[rack]) / others;
    }
}

static void open_cluster(struct step *step)
{
    const struct rb_cluster *cluster = step->how->cluster;
    uint32_t ranks = step->how->ranks;

    step->simulate = rb_simulate_new();
    step->slots = rb_alloc(ranks * sizeof(int));
    step->inside = rb_alloc(ranks * sizeof(int));
    step->last = rb_alloc(ranks * sizeof(int));
    step->ways = rb_alloc(ranks * sizeof *step->ways);
    step->sent = rb_alloc(ranks * sizeof *step->sent);
    step->out = rb_alloc(ranks * sizeof *step->out);
    step->busy = rb_alloc(ranks * sizeof *step->busy);
    step->network = rb_alloc(cluster->n_nodes * sizeof(int));
    step->memory = rb_alloc(cluster->n_nodes * sizeof(int));
    step->racks = rb_alloc((cluster->n_racks + 1) * sizeof(int));
    step->latency = rb_cluster_latency(cluster, ranks);
    for (uint32_t n = 0; n < cluster->n_nodes; n++) {
        step->network[n] = new_resource(step->simulate, cluster->nodes[n].network.bandwidth);
        step->memory[n] = new_resource(step->simulate, cluster->nodes[n].memory_bandwidth);
    }
    for (uint32_t n = 0; n < cluster->n_racks; n++)
        step->racks[n] = new_resource(step->simulate, cluster->racks[n].bandwidth);
    for (uint32_t r = 0; r < ranks; r++) {
        const struct rb_cluster_node *node = &cluster->nodes[cluster->devices[r].node];

        step->slots[r] = rb_simulate_slot(step->simulate);
        step->inside[r] = new_resource(step->simulate, node->inside.bandwidth);
        step->last[r] = -1;
    }
    find_ways(step);
}

/* All but the simulation, which is the caller's. */
static void close_cluster(struct step *step)
{
    free(step->slots);
    free(step->inside);
    free(step->last);
    free(step->ways);
    free(step->sent);
    free(step->out);
    free(step->busy);
    free(step->network);
    free(step->memory);
    free(step->racks);
}

/* ---- Tasks -----------------------------------------------------------------------------------*/

static void use(struct rb_simulate_task *task, int resource, double amount)
{
    if (resource >= 0)
        rb_simulate_use(task, resource, amount);
}

static void add(struct step *step, uint32_t rank, const struct rb_simulate_task *task)
{
    int i = rb_simulate_add(step->simulate, task);

    if (step->last[rank] >= 0)
        rb_simulate_after(step->simulate, i, step->last[rank]);
    step->last[rank] = i;
}

/* Something that the rank's device does by itself. */
static void add_work(struct step *step, uint32_t rank, int kind, uint32_t number,
                     struct rb_cost cost)
{
    struct rb_simulate_task task = {
        .slot = step->slots[rank],
        .work = cost.seconds,
        .rate = 1,
        .kind = kind,
        .lane = rank,
        .number = number,
    };

    if (cost.seconds > 0)
        use(&task, step->memory[step->how->cluster->devices[rank].node], cost.bytes / cost.seconds);
    add(step, rank, &task);
}

/* All ranks send and receive as much. */
static void fill_bytes(struct step *step, double bytes)
{
    for (uint32_t r = 0; r < step->how->ranks; r++)
        step->out[r] = step->busy[r] = bytes;
}

/* Everyone waits for everyone; then each sends its bytes, evenly to all others. */
static void add_exchange(struct step *step, int kind, uint32_t number, int crossings)
{
    const struct rb_cluster *cluster = step->how->cluster;
    struct rb_simulate_task meet = {.slot = RB_SIMULATE_NO_SLOT, .kind = RB_PREDICT_MEET};
    int all = rb_simulate_add(step->simulate, &meet);

    for (uint32_t r = 0; r < step->how->ranks; r++)
        if (step->last[r] >= 0)
            rb_simulate_after(step->simulate, all, step->last[r]);
    for (uint32_t r = 0; r < step->how->ranks; r++) {
        uint32_t node = cluster->devices[r].node, rack = cluster->nodes[node].rack;
        struct rb_simulate_task task = {
            .slot = step->slots[r],
            .latency = crossings * step->latency,
            .work = step->busy[r],
            .kind = kind,
            .lane = r,
            .number = number,
        };

        use(&task, step->inside[r], step->ways[r].inside);
        use(&task, step->network[node], step->ways[r].network);
        if (rack != RB_CLUSTER_NO_RACK)
            use(&task, step->racks[rack], step->ways[r].rack);
        step->last[r] = all;
        add(step, r, &task);
        step->sent[r] += step->out[r];
    }
}

/* ---- A step ----------------------------------------------------------------------------------*/

/* The program of the last microbatch, which may be smaller. */
static size_t last_program(const Rb__Model *model)
{
    int64_t rest = model->global_batch % model->micro_batch;

    for (size_t p = 1; rest && p < model->n_programs; p++)
        if (model->programs[p]->train && model->programs[p]->batch == rest)
            return p;
    return 0;
}

static struct rb_cost plus(struct rb_cost a, struct rb_cost b)
{
    return (struct rb_cost){a.seconds + b.seconds, a.bytes + b.bytes};
}

static struct rb_cost microbatch(const struct rb_predict_how *how, uint32_t rank, size_t p,
                                 bool first)
{
    const struct rb_cluster_device *device = &how->cluster->devices[rank];

    return plus(rb_cost_program(how->model, p, device, how->profile),
                rb_cost_sums(rb_cost_sums_bytes(how->model, p, first), device, how->profile));
}

static void add_microbatches(struct step *step, uint32_t rank, uint32_t first, uint32_t total)
{
    const struct rb_predict_how *how = step->how;
    uint32_t share = how->shares[rank];
    struct rb_cost one = microbatch(how, rank, 0, false), all = {0};

    for (uint32_t m = first; m < first + share; m++) {
        struct rb_cost this = one;

        if (m == first || m + 1 == total)
            this = microbatch(how, rank, m + 1 == total ? last_program(how->model) : 0, m == first);
        all = plus(all, this);
        if (total <= MOST_TASKS)
            add_work(step, rank, RB_PREDICT_COMPUTE, m, this);
    }
    if (total > MOST_TASKS && share)
        add_work(step, rank, RB_PREDICT_COMPUTE, first, all);
}

/* Bytes that a rank sends for a sum of so many: whole to everyone, or a part to each and back. */
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

/* Who holds which blocks; NULL: the model's sizes make no sense. */
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

/* Of a bucket, each part goes from everyone to those who hold it.  Shards are long: mostly they are
 * one or two ranks, to whom all others send while they send nothing. */
static void find_flows(struct step *step, const Rb__Plan *plan, const Rb__Bucket *bucket)
{
    Rb__Block *const *blocks = step->how->model->blocks;
    double all = 0;

    fill_bytes(step, 0);
    for (size_t i = 0; i < plan->n_shards; i++) {
        const Rb__Shard *shard = plan->shards[i];
        const Rb__Block *last = blocks[shard->first_block + shard->n_blocks - 1];
        uint64_t from = blocks[shard->first_block]->first, end = last->first + last->count;
        double bytes;

        from = from > bucket->first ? from : bucket->first;
        end = end < bucket->first + bucket->count ? end : bucket->first + bucket->count;
        bytes = end > from ? 4.0 * (double)(end - from) : 0;
        all += bytes * (double)shard->n_ranks;
        for (size_t r = 0; r < shard->n_ranks; r++)
            step->out[shard->ranks[r]] += bytes; /* held, for now */
    }
    for (uint32_t r = 0; r < step->how->ranks; r++) {
        double received = step->out[r] * (step->how->ranks - 1);

        step->out[r] = all - step->out[r];
        step->busy[r] = fmax(step->out[r], received);
    }
}

static void add_sums(struct step *step)
{
    const Rb__Model *model = step->how->model;
    Rb__Plan *plan = sharded(step->how) ? new_shards(step->how) : NULL;

    for (size_t b = 0; b < model->n_buckets && step->how->ranks > 1; b++) {
        int crossings = 1;

        if (plan)
            find_flows(step, plan, model->buckets[b]);
        else
            fill_bytes(step,
                       sum_bytes(step->how, 4.0 * (double)model->buckets[b]->count, &crossings));
        add_exchange(step, RB_PREDICT_SUM, (uint32_t)b, crossings);
    }
    if (plan)
        rb__plan__free_unpacked(plan, NULL);
}

static void add_vote(struct step *step, uint32_t total)
{
    enum { PER_MICROBATCH = 24, PER_VARIABLE = 8 };
    double record =
        PER_MICROBATCH * (double)total + PER_VARIABLE * (double)step->how->model->n_variables;

    if (step->how->ranks < 2)
        return;
    fill_bytes(step, record * (step->how->ranks - 1));
    add_exchange(step, RB_PREDICT_VOTE, 0, 1);
}

/* Elements of the state that a rank holds. */
static double held(const struct rb_predict_how *how)
{
    double all = (double)how->model->state_elements;

    return sharded(how) ? all * how->copies / how->ranks : all;
}

static void add_update(struct step *step)
{
    const struct rb_predict_how *how = step->how;
    double elements = (double)how->model->state_elements, n = how->ranks;
    double bytes = rb_cost_update_bytes(how->model, held(how));

    for (uint32_t r = 0; r < how->ranks; r++)
        add_work(step, r, RB_PREDICT_UPDATE, 0,
                 rb_cost_bytes(bytes, &how->cluster->devices[r], how->profile));
    if (!sharded(how))
        return;
    fill_bytes(step,
               4 * elements * (n - how->copies) / n); /* primaries, to those who do not hold */
    add_exchange(step, RB_PREDICT_GATHER, 0, 1);
}

/* ---- What comes out --------------------------------------------------------------------------*/

static void read_times(const struct step *step, struct rb_predict_step *ret)
{
    const struct rb_simulate *simulate = step->simulate;
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
    ret->idle = ret->seconds > 0 ? fmax(0, 1 - busy / step->how->ranks / ret->seconds) : 0;
    for (uint32_t r = 0; r < step->how->ranks; r++)
        ret->sent = fmax(ret->sent, step->sent[r]);
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
    struct step step = {.how = how};
    uint32_t total = rb_schedule_microbatches(how->model), next = 0;
    int err = check_shares(how, total, why);

    if (err)
        return err;
    open_cluster(&step);
    for (uint32_t r = 0; r < how->ranks; next += how->shares[r++])
        add_microbatches(&step, r, next, total);
    add_sums(&step);
    add_vote(&step, total);
    add_update(&step);
    err = rb_simulate_run(step.simulate, &result.seconds, why);
    if (err) {
        rb_simulate_free(step.simulate);
    } else {
        read_times(&step, &result);
        result.simulate = step.simulate;
        *ret_step = result;
    }
    close_cluster(&step);
    return err;
}

double rb_predict_microbatch(const Rb__Model *model, const struct rb_cluster_device *device,
                             const struct rb_cost_profile *profile)
{
    struct rb_cost program = rb_cost_program(model, 0, device, profile);
    struct rb_cost sums = rb_cost_sums(rb_cost_sums_bytes(model, 0, false), device, profile);

    return program.seconds + sums.seconds;
}
