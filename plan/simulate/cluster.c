/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/cluster.h"

#include "base/buffer.h"
#include "base/file.h"
#include "cluster.pb-c.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <string.h>

enum { FILE_LIMIT = 1 << 20, MOST_DEVICES = 1 << 16 };

/* ---- Checking --------------------------------------------------------------------------------*/

static int check_positive(const char *node, const char *key, double x, bool zero,
                          struct rb_why *why)
{
    if (x > 0 || (zero && x == 0))
        return 0;
    return rb_why_set(why, RB_EINVAL, "%.60s: %s: %g is not above 0", node, key, x);
}

static int check_link(const char *node, const char *key, const Rb__ClusterLink *link,
                      struct rb_why *why)
{
    int err = link ? check_positive(node, key, link->bandwidth, true, why) : 0;

    return err || !link ? err : check_positive(node, key, link->latency, true, why);
}

static int check_devices(const char *node, const Rb__ClusterDevices *devices, struct rb_why *why)
{
    int err = check_positive(node, "speed", devices->speed, false, why);

    if (!err && devices->has_flops != devices->has_bandwidth)
        err = rb_why_set(why, RB_EINVAL, "%.60s: flops and bandwidth go together", node);
    if (!err && devices->has_flops)
        err = check_positive(node, "flops", devices->flops, false, why);
    if (!err && devices->has_flops)
        err = check_positive(node, "bandwidth", devices->bandwidth, false, why);
    return err;
}

static int check_nodes(const Rb__ClusterNodes *nodes, struct rb_why *why)
{
    int err = check_link(nodes->name, "inside", nodes->inside, why);

    if (!err)
        err = check_link(nodes->name, "network", nodes->network, why);
    if (!err)
        err = check_positive(nodes->name, "memoryBandwidth", nodes->memory_bandwidth, true, why);
    if (!err && !nodes->n_devices)
        err = rb_why_set(why, RB_EINVAL, "%.60s: it has no devices", nodes->name);
    for (size_t i = 0; !err && i < nodes->n_devices; i++)
        err = check_devices(nodes->name, nodes->devices[i], why);
    return err;
}

/* Count the devices of each of `nodes`, MOST_DEVICES at most. */
static int count_devices(const Rb__ClusterFile *file, uint32_t *ret_nodes, uint32_t *ret_devices,
                         struct rb_why *why)
{
    uint64_t all = 0, machines = 0;

    for (size_t i = 0; i < file->n_nodes; i++) {
        uint64_t each = 0;

        for (size_t d = 0; d < file->nodes[i]->n_devices; d++)
            each += file->nodes[i]->devices[d]->count;
        if (each > MOST_DEVICES || file->nodes[i]->count > MOST_DEVICES)
            all = MOST_DEVICES;
        all += each * file->nodes[i]->count;
        machines += file->nodes[i]->count;
        if (all > MOST_DEVICES || machines > MOST_DEVICES)
            return rb_why_set(why, RB_ELIMIT, "more than %d devices", MOST_DEVICES);
    }
    if (!all)
        return rb_why_set(why, RB_EINVAL, "there are no devices in it");
    *ret_nodes = (uint32_t)machines;
    *ret_devices = (uint32_t)all;
    return 0;
}

/* ---- Filling ---------------------------------------------------------------------------------*/

static struct rb_cluster_link take_link(const Rb__ClusterLink *link)
{
    struct rb_cluster_link none = {0};

    return link ? (struct rb_cluster_link){link->bandwidth, link->latency} : none;
}

static int find_rack(const Rb__ClusterFile *file, const Rb__ClusterNodes *nodes, uint32_t *ret_rack,
                     struct rb_why *why)
{
    *ret_rack = RB_CLUSTER_NO_RACK;
    if (!nodes->rack)
        return 0;
    for (uint32_t i = 0; i < file->n_racks; i++)
        if (!strcmp(file->racks[i]->name, nodes->rack)) {
            *ret_rack = i;
            return 0;
        }
    return rb_why_set(why, RB_EINVAL, "%.60s: there is no rack '%.60s'", nodes->name, nodes->rack);
}

static int add_devices(struct rb_cluster *cluster, const Rb__ClusterDevices *devices,
                       struct rb_why *why)
{
    struct rb_cluster_device one = {
        .node = cluster->n_nodes - 1,
        .kind = rb_arena_string(&cluster->arena, devices->kind),
        .speed = devices->speed,
        .flops = devices->has_flops ? devices->flops : 0,
        .bandwidth = devices->has_flops ? devices->bandwidth : 0,
    };

    if (devices->memory && rb_spec_bytes(devices->memory, &one.memory))
        return rb_why_set(why, RB_EINVAL, "memory: '%.40s' is no size", devices->memory);
    for (uint32_t i = 0; i < devices->count; i++)
        cluster->devices[cluster->n_devices++] = one;
    return 0;
}

static int add_nodes(struct rb_cluster *cluster, const Rb__ClusterFile *file,
                     const Rb__ClusterNodes *nodes, struct rb_why *why)
{
    uint32_t rack;
    int err = find_rack(file, nodes, &rack, why);

    for (uint32_t i = 0; !err && i < nodes->count; i++) {
        cluster->nodes[cluster->n_nodes++] = (struct rb_cluster_node){
            .name = nodes->count > 1 ? rb_arena_format(&cluster->arena, "%s-%u", nodes->name, i)
                                     : rb_arena_string(&cluster->arena, nodes->name),
            .rack = rack,
            .inside = take_link(nodes->inside),
            .network = take_link(nodes->network),
            .memory_bandwidth = nodes->memory_bandwidth,
        };
        for (size_t d = 0; !err && d < nodes->n_devices; d++)
            err = add_devices(cluster, nodes->devices[d], why);
    }
    return err;
}

static int fill(struct rb_cluster *cluster, const Rb__ClusterFile *file, struct rb_why *why)
{
    uint32_t nodes = 0, devices = 0;
    int err = 0;

    for (size_t i = 0; !err && i < file->n_nodes; i++)
        err = check_nodes(file->nodes[i], why);
    for (size_t i = 0; !err && i < file->n_racks; i++)
        err = check_link(file->racks[i]->name, "network", file->racks[i]->network, why);
    if (!err)
        err = count_devices(file, &nodes, &devices, why);
    if (err)
        return err;
    cluster->nodes = RB_ARENA_NEW(&cluster->arena, struct rb_cluster_node, nodes);
    cluster->devices = RB_ARENA_NEW(&cluster->arena, struct rb_cluster_device, devices);
    cluster->racks = RB_ARENA_NEW(&cluster->arena, struct rb_cluster_link, file->n_racks);
    for (size_t i = 0; i < file->n_racks; i++)
        cluster->racks[cluster->n_racks++] = take_link(file->racks[i]->network);
    for (size_t i = 0; !err && i < file->n_nodes; i++)
        err = add_nodes(cluster, file, file->nodes[i], why);
    return err;
}

int rb_cluster_parse(const char *file, const char *text, size_t size, struct rb_cluster *ret,
                     struct rb_why *why)
{
    struct rb_cluster cluster = {0};
    ProtobufCMessage *message = NULL;
    int err = rb_reflect_from_yaml(file, text, size, &rb__cluster_file__descriptor, &message, why);

    if (err)
        return err;
    err = fill(&cluster, (const Rb__ClusterFile *)message, why);
    protobuf_c_message_free_unpacked(message, NULL);
    if (err) {
        rb_cluster_done(&cluster);
        return rb_why_add(why, err, "%s", file);
    }
    *ret = cluster;
    return 0;
}

int rb_cluster_read(const char *path, struct rb_cluster *ret, struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer text = {0};
    int err = rb_file_read(path, FILE_LIMIT, &text, why);

    return err ? err : rb_cluster_parse(path, text.data, text.size, ret, why);
}

void rb_cluster_here(const char *kind, uint32_t devices, struct rb_cluster_link inside,
                     uint64_t memory, struct rb_cluster *ret)
{
    struct rb_cluster cluster = {.n_devices = devices, .n_nodes = 1};

    cluster.nodes = RB_ARENA_NEW(&cluster.arena, struct rb_cluster_node, 1);
    cluster.nodes[0] =
        (struct rb_cluster_node){.name = "here", .rack = RB_CLUSTER_NO_RACK, .inside = inside};
    cluster.devices = RB_ARENA_NEW(&cluster.arena, struct rb_cluster_device, devices);
    for (uint32_t i = 0; i < devices; i++)
        cluster.devices[i] = (struct rb_cluster_device){
            .kind = rb_arena_string(&cluster.arena, kind), .speed = 1, .memory = memory};
    *ret = cluster;
}

/* Through shared memory a byte is copied in, read, and added to another: five bytes of its core's
 * memory traffic by count, and six and a half as measured (the sums of tests/bench/predict.py),
 * because the byte changes cores.  Where devices have memory of their own, the byte first comes out
 * of the sender's and last goes into the receiver's. */
struct rb_cluster_link rb_cluster_inside(double copied, double crossing)
{
    static const double touched = 6.5, latency = 10e-6;
    double seconds = touched / copied + (crossing > 0 ? 2 / crossing : 0); /* a byte */

    return (struct rb_cluster_link){1 / seconds, latency};
}

/* ---- Asking ----------------------------------------------------------------------------------*/

bool rb_cluster_unmeasured(const struct rb_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->n_devices; i++)
        if (cluster->devices[i].flops <= 0)
            return true;
    return false;
}

static double longer(double a, double b)
{
    return a > b ? a : b;
}

double rb_cluster_latency(const struct rb_cluster *cluster, uint32_t devices)
{
    const struct rb_cluster_node *first = &cluster->nodes[cluster->devices[0].node];
    double latency = 0;

    for (uint32_t i = 1; i < devices; i++) {
        const struct rb_cluster_node *node = &cluster->nodes[cluster->devices[i].node];
        double way = longer(first->network.latency, node->network.latency);

        if (node == first)
            way = node->inside.latency;
        else if (node->rack != first->rack && node->rack != RB_CLUSTER_NO_RACK)
            way = longer(way, cluster->racks[node->rack].latency);
        latency = longer(latency, way);
    }
    return latency;
}

void rb_cluster_done(struct rb_cluster *cluster)
{
    rb_arena_done(&cluster->arena);
    *cluster = (struct rb_cluster){0};
}
