/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/predict_inside.h"

#include "base/arena.h"

#include <stdlib.h>

static int new_resource(struct rb_simulate *simulate, double capacity)
{
    return capacity > 0 ? rb_simulate_resource(simulate, capacity) : -1;
}

/* Which parts of the other ranks are on the rank's node, off the node, and off the rack. */
static void find_ways(struct rb_predict_tasks *tasks)
{
    const struct rb_cluster *cluster = tasks->how->cluster;
    uint32_t ranks = tasks->how->ranks;
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

        tasks->ways[r].inside = (on_node[node] - 1) / others;
        tasks->ways[r].network = (ranks - on_node[node]) / others;
        if (rack != RB_CLUSTER_NO_RACK)
            tasks->ways[r].rack = (ranks - in_rack[rack]) / others;
    }
}

void rb_predict_open(struct rb_predict_tasks *tasks)
{
    const struct rb_cluster *cluster = tasks->how->cluster;
    uint32_t ranks = tasks->how->ranks;

    tasks->simulate = rb_simulate_new();
    tasks->slots = rb_alloc(ranks * sizeof(int));
    tasks->inside = rb_alloc(ranks * sizeof(int));
    tasks->last = rb_alloc(ranks * sizeof(int));
    tasks->ways = rb_alloc(ranks * sizeof *tasks->ways);
    tasks->sent = rb_alloc(ranks * sizeof *tasks->sent);
    tasks->out = rb_alloc(ranks * sizeof *tasks->out);
    tasks->busy = rb_alloc(ranks * sizeof *tasks->busy);
    tasks->network = rb_alloc(cluster->n_nodes * sizeof(int));
    tasks->memory = rb_alloc(cluster->n_nodes * sizeof(int));
    tasks->racks = rb_alloc((cluster->n_racks + 1) * sizeof(int));
    tasks->latency = rb_cluster_latency(cluster, ranks);
    for (uint32_t n = 0; n < cluster->n_nodes; n++) {
        tasks->network[n] = new_resource(tasks->simulate, cluster->nodes[n].network.bandwidth);
        tasks->memory[n] = new_resource(tasks->simulate, cluster->nodes[n].memory_bandwidth);
    }
    for (uint32_t n = 0; n < cluster->n_racks; n++)
        tasks->racks[n] = new_resource(tasks->simulate, cluster->racks[n].bandwidth);
    for (uint32_t r = 0; r < ranks; r++) {
        const struct rb_cluster_node *node = &cluster->nodes[cluster->devices[r].node];

        tasks->slots[r] = rb_simulate_slot(tasks->simulate);
        tasks->inside[r] = new_resource(tasks->simulate, node->inside.bandwidth);
        tasks->last[r] = -1;
    }
    find_ways(tasks);
}

void rb_predict_close(struct rb_predict_tasks *tasks)
{
    free(tasks->slots);
    free(tasks->inside);
    free(tasks->last);
    free(tasks->ways);
    free(tasks->sent);
    free(tasks->out);
    free(tasks->busy);
    free(tasks->network);
    free(tasks->memory);
    free(tasks->racks);
}

static void use(struct rb_simulate_task *task, int resource, double amount)
{
    if (resource >= 0)
        rb_simulate_use(task, resource, amount);
}

static void add(struct rb_predict_tasks *tasks, uint32_t rank, const struct rb_simulate_task *task)
{
    int i = rb_simulate_add(tasks->simulate, task);

    if (tasks->last[rank] >= 0)
        rb_simulate_after(tasks->simulate, i, tasks->last[rank]);
    tasks->last[rank] = i;
}

void rb_predict_work(struct rb_predict_tasks *tasks, uint32_t rank, int kind, uint32_t number,
                     struct rb_cost cost)
{
    struct rb_simulate_task task = {
        .slot = tasks->slots[rank],
        .work = cost.seconds,
        .rate = 1,
        .kind = kind,
        .lane = rank,
        .number = number,
    };

    if (cost.seconds > 0)
        use(&task, tasks->memory[tasks->how->cluster->devices[rank].node],
            cost.bytes / cost.seconds);
    add(tasks, rank, &task);
}

void rb_predict_fill(struct rb_predict_tasks *tasks, double bytes)
{
    for (uint32_t r = 0; r < tasks->how->ranks; r++)
        tasks->out[r] = tasks->busy[r] = bytes;
}

void rb_predict_exchange(struct rb_predict_tasks *tasks, int kind, uint32_t number, int crossings)
{
    const struct rb_cluster *cluster = tasks->how->cluster;
    struct rb_simulate_task meet = {.slot = RB_SIMULATE_NO_SLOT, .kind = RB_PREDICT_MEET};
    int all = rb_simulate_add(tasks->simulate, &meet);

    for (uint32_t r = 0; r < tasks->how->ranks; r++)
        if (tasks->last[r] >= 0)
            rb_simulate_after(tasks->simulate, all, tasks->last[r]);
    for (uint32_t r = 0; r < tasks->how->ranks; r++) {
        uint32_t node = cluster->devices[r].node, rack = cluster->nodes[node].rack;
        struct rb_simulate_task task = {
            .slot = tasks->slots[r],
            .latency = crossings * tasks->latency,
            .work = tasks->busy[r],
            .kind = kind,
            .lane = r,
            .number = number,
        };

        use(&task, tasks->inside[r], tasks->ways[r].inside);
        use(&task, tasks->network[node], tasks->ways[r].network);
        if (rack != RB_CLUSTER_NO_RACK)
            use(&task, tasks->racks[rack], tasks->ways[r].rack);
        tasks->last[r] = all;
        add(tasks, r, &task);
        tasks->sent[r] += tasks->out[r];
    }
}
