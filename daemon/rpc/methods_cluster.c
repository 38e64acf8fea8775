/* SPDX-License-Identifier: Apache-2.0 */
/* The method `cluster`: the devices and links that nodes have measured, as a cluster file
 * (proto/cluster.proto), those of a job first. */
#include "daemon/rpc/methods_inside.h"

#include "daemon/facts/measured.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <string.h>

static void add_member(Rb__Configuration *all, const char *node, uint32_t device,
                       struct rb_arena *arena)
{
    Rb__Member *member = RB_ARENA_NEW(arena, Rb__Member, 1);

    for (size_t m = 0; m < all->n_members; m++)
        if (all->members[m]->device == device && !strcmp(all->members[m]->node, node))
            return;
    rb__member__init(member);
    member->node = (char *)node;
    member->device = device;
    all->members[all->n_members++] = member;
}

/* The kind of devices that the job may have, with which its class begins; cores where there is no
 * job. */
static const char *kind_of(const struct rb_job_facts *job)
{
    return job && rb_spec_class_is(job->job.job->numeric_class, "cuda") ? "cuda" : "cpu";
}

/* Cores of any class are priced by what they have measured, GPUs of the job's class by its profile.
 */
static bool belongs(const struct rb_job_facts *job, const char *kind, const Rb__Node *node,
                    const Rb__Device *device)
{
    if (strcmp(device->kind, kind))
        return false;
    if (!strcmp(kind, "cpu"))
        return device->has_flops;
    return !device->sick && !strcmp(rb_facts_class(node, device), job->job.job->numeric_class);
}

static void gather(const struct rb_facts *facts, const struct rb_job_facts *job, const char *kind,
                   Rb__Configuration *all, struct rb_arena *arena)
{
    const Rb__Configuration *first = job ? rb_job_active(job) : NULL;
    size_t n = first ? first->n_members : 0;

    for (size_t i = 0; i < facts->nodes.n; i++)
        n += facts->nodes.at[i].node->n_devices;
    rb__configuration__init(all);
    all->members = RB_ARENA_NEW(arena, Rb__Member *, n + 1);
    for (size_t m = 0; first && m < first->n_members; m++)
        add_member(all, first->members[m]->node, first->members[m]->device, arena);
    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++)
            if (belongs(job, kind, node, node->devices[d]))
                add_member(all, node->name, node->devices[d]->index, arena);
    }
}

static json_t *link_json(struct rb_cluster_link link)
{
    return json_pack("{s:f,s:f}", "bandwidth", link.bandwidth, "latency", link.latency);
}

static json_t *cluster_json(const struct rb_cluster *cluster)
{
    json_t *nodes = json_array();

    for (uint32_t n = 0; n < cluster->n_nodes; n++) {
        json_t *devices = json_array();

        for (uint32_t d = 0; d < cluster->n_devices; d++) {
            const struct rb_cluster_device *device = &cluster->devices[d];
            json_t *row;

            if (device->node != n)
                continue;
            row = json_pack("{s:s,s:f}", "kind", device->kind, "speed", device->speed);
            if (device->memory)
                json_object_set_new(row, "memory", json_sprintf("%" PRIu64, device->memory));
            json_array_append_new(devices, row);
        }
        json_array_append_new(nodes,
                              json_pack("{s:s,s:o,s:o,s:o}", "name", cluster->nodes[n].name,
                                        "inside", link_json(cluster->nodes[n].inside), "network",
                                        link_json(cluster->nodes[n].network), "devices", devices));
    }
    return json_pack("{s:o}", "nodes", nodes);
}

/* Bytes that a core of the first member's node copies a second; 0: no core was measured, or the
 * devices are not cores. */
static double copied(const struct rb_facts *facts, const Rb__Configuration *all, const char *kind)
{
    const struct rb_fact *fact =
        all->n_members ? rb_fact_find(&facts->nodes, all->members[0]->node) : NULL;

    for (size_t d = 0; fact && !strcmp(kind, "cpu") && d < fact->node->n_devices; d++)
        if (fact->node->devices[d]->has_bandwidth)
            return fact->node->devices[d]->bandwidth;
    return 0;
}

static void cluster(struct rb_request *request, void *context)
{
    const struct rb_facts *facts = rb_methods_facts(context);
    const struct rb_job_facts *job = NULL;
    struct rb_arena arena = {0};
    struct rb_cluster found;
    struct rb_why why = {{0}};
    struct rb_measured_by by;
    Rb__Configuration all;
    const char *kind;
    int err;

    if (json_object_get(rb_request_body(request), "job")) {
        job = rb_methods_job(context, request);
        if (!job)
            return;
    }
    kind = kind_of(job);
    gather(facts, job, kind, &all, &arena);
    by = (struct rb_measured_by){.kind = kind, .copied = copied(facts, &all, kind)};
    by.node = all.n_members ? all.members[0]->node : "";
    err = all.n_members ? rb_measured_cluster(facts, &all, &by, &found, &why)
                        : rb_why_set(&why, RB_ENOTFOUND, "no device here was measured");
    if (err) {
        rb_request_fail(request, err, &why);
    } else {
        rb_request_reply(request, cluster_json(&found));
        rb_cluster_done(&found);
    }
    rb_arena_done(&arena);
}

const struct rb_server_method rb_methods_cluster[] = {
    {"cluster", true, cluster, .reads = true},
    {NULL, false, NULL},
};
