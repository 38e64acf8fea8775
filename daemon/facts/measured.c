/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/measured.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Speeds that differ by less than this factor count as one. */
static const double alike = 1.25;

static const Rb__Device *find_device(const Rb__Node *node, uint32_t index)
{
    for (size_t d = 0; d < node->n_devices; d++)
        if (node->devices[d]->index == index)
            return node->devices[d];
    return NULL;
}

/* Flops of the cores of a node; 0: not measured. */
static double cores_of(const struct rb_facts *facts, const char *name)
{
    const struct rb_fact *fact = rb_fact_find(&facts->nodes, name);

    for (size_t d = 0; fact && d < fact->node->n_devices; d++)
        if (fact->node->devices[d]->has_flops)
            return fact->node->devices[d]->flops;
    return 0;
}

static bool same_host(const Rb__Node *a, const Rb__Node *b)
{
    return !strcmp(a->name, b->name) || (a->host && b->host && !strcmp(a->host, b->host));
}

/* The device's own memory, or an even part of the node's. */
static uint64_t memory_of(const Rb__Node *node, const Rb__Device *device)
{
    return device->has_bytes ? device->bytes : node->n_devices ? node->memory / node->n_devices : 0;
}

/* As a multiple of the device that was profiled; 0: not known. */
static double speed_of(const Rb__Device *device, const char *kind, double reference)
{
    if (!device || strcmp(device->kind, kind))
        return 0;
    if (strcmp(kind, "cpu"))
        return 1;
    return !device->has_flops ? 0 : reference > 0 ? device->flops / reference : 1;
}

static int add_device(const Rb__Node *node, uint32_t index, const char *kind, double reference,
                      struct rb_cluster *cluster, struct rb_why *why)
{
    const Rb__Device *device = find_device(node, index);
    double speed = speed_of(device, kind, reference);

    if (speed <= 0)
        return rb_why_set(why, RB_ENOTFOUND,
                          "the speed of %.60s:%u beside a profile of kind %.20s "
                          "is not known",
                          node->name, index, kind);
    cluster->devices[cluster->n_devices++] = (struct rb_cluster_device){
        .node = cluster->n_nodes - 1,
        .kind = rb_arena_string(&cluster->arena, device->kind),
        .speed = speed < alike && speed > 1 / alike ? 1 : speed,
        .memory = memory_of(node, device),
    };
    return 0;
}

/* The place of a node in `known`, which are the nodes of the cluster; a new node goes to the
 * end. */
static uint32_t place_node(const Rb__Node *node, struct rb_cluster_link inside,
                           const Rb__Node **known, struct rb_cluster *cluster)
{
    uint32_t at = 0;

    while (at < cluster->n_nodes && !same_host(known[at], node))
        at++;
    if (at == cluster->n_nodes) {
        known[cluster->n_nodes++] = node;
        cluster->nodes[at] = (struct rb_cluster_node){
            .name = rb_arena_string(&cluster->arena, node->name),
            .rack = RB_CLUSTER_NO_RACK,
            .inside = inside,
            .network = {node->network_bandwidth, node->network_latency},
        };
    }
    return at;
}

static int fill(const struct rb_facts *facts, const Rb__Configuration *configuration,
                const struct rb_measured_by *by, struct rb_cluster *cluster, struct rb_why *why)
{
    size_t n = configuration->n_members;
    const Rb__Node **known = RB_ARENA_NEW(&cluster->arena, const Rb__Node *, n);
    double reference = cores_of(facts, by->node);

    if (reference <= 0 && n)
        reference = cores_of(facts, configuration->members[0]->node);

    cluster->nodes = RB_ARENA_NEW(&cluster->arena, struct rb_cluster_node, n);
    cluster->devices = RB_ARENA_NEW(&cluster->arena, struct rb_cluster_device, n);
    for (size_t m = 0; m < n; m++) {
        const Rb__Member *member = configuration->members[m];
        const struct rb_fact *fact = rb_fact_find(&facts->nodes, member->node);
        uint32_t place;
        int err;

        if (!fact)
            return rb_why_set(why, RB_ENOTFOUND, "node %.60s is out of reach", member->node);
        place = place_node(fact->node, rb_cluster_inside(by->copied, by->crossing), known, cluster);
        err = add_device(fact->node, member->device, by->kind, reference, cluster, why);
        if (err)
            return err;
        cluster->devices[m].node = place;
    }
    for (uint32_t i = 0; cluster->n_nodes > 1 && i < cluster->n_nodes; i++)
        if (cluster->nodes[i].network.bandwidth <= 0)
            return rb_why_set(why, RB_ENOTFOUND, "the link of node %.60s was not measured",
                              known[i]->name);
    return 0;
}

int rb_measured_cluster(const struct rb_facts *facts, const Rb__Configuration *configuration,
                        const struct rb_measured_by *by, struct rb_cluster *ret, struct rb_why *why)
{
    struct rb_cluster cluster = {0};
    int err = fill(facts, configuration, by, &cluster, why);

    if (err)
        rb_cluster_done(&cluster);
    else
        *ret = cluster;
    return err;
}

/* ---- While it trains --------------------------------------------------------------------------*/

static int smaller_first(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static double in_steps(double part)
{
    const double step = log(1.1);

    return exp(step * round(log(part) / step));
}

void rb_measured_paces(struct rb_cluster *cluster, const uint32_t *us, double expected)
{
    RB_CLEANUP(rb_freep) double *parts = rb_alloc((cluster->n_devices + 1) * sizeof *parts);
    double median;
    size_t n = 0;

    for (uint32_t d = 0; d < cluster->n_devices; d++)
        if (us[d])
            parts[n++] = expected / (us[d] * cluster->devices[d].speed);
    if (!n || expected <= 0)
        return;
    qsort(parts, n, sizeof *parts, smaller_first);
    median = parts[n / 2];
    for (uint32_t d = 0; d < cluster->n_devices; d++) {
        double *speed = &cluster->devices[d].speed;
        double own = us[d] ? expected / (us[d] * *speed) : median;

        *speed *= in_steps(own < alike * median && own > median / alike ? median : own);
    }
}
