/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and links as the planner sees them.
 *
 * cluster file, or what was measured here > [cluster] > cost, step, search
 *
 * Devices stand on nodes, nodes in racks.  A device has a link of its own to the others of its
 * node; the devices of a node share its network and its memory; the nodes of a rack share the
 * rack's network.  All links go both ways at once. */
#ifndef RB_PLAN_SIMULATE_CLUSTER_H
#define RB_PLAN_SIMULATE_CLUSTER_H

#include "base/arena.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RB_CLUSTER_NO_RACK = UINT32_MAX };

struct rb_cluster_link {
    double bandwidth; /* bytes a second; 0: no obstacle */
    double latency;   /* seconds */
};

struct rb_cluster_device {
    uint32_t node;
    const char *kind;
    double speed;     /* times the core that a profile was taken on; where flops is 0 */
    double flops;     /* a second; 0: by the profile */
    double bandwidth; /* bytes a second of its memory; 0 where flops is */
    uint64_t memory;  /* bytes; 0: not looked at */
};

struct rb_cluster_node {
    const char *name;
    uint32_t rack; /* RB_CLUSTER_NO_RACK: in none */
    struct rb_cluster_link inside, network;
    double memory_bandwidth; /* of all its devices together; 0: no obstacle */
};

struct rb_cluster {
    struct rb_arena arena; /* of all below */
    struct rb_cluster_device *devices;
    struct rb_cluster_node *nodes;
    struct rb_cluster_link *racks;
    uint32_t n_devices, n_nodes, n_racks;
};

/* The file's text; `file` is its name in messages. */
int rb_cluster_parse(const char *file, const char *text, size_t size, struct rb_cluster *ret,
                     struct rb_why *why);
int rb_cluster_read(const char *path, struct rb_cluster *ret, struct rb_why *why);

/* One node of `devices` devices, all like the one that the profile was taken on. */
void rb_cluster_here(const char *kind, uint32_t devices, struct rb_cluster_link inside,
                     uint64_t memory, struct rb_cluster *ret);

/* The link that is assumed between the devices of a machine.  copied: bytes a second that a core
 * copies.  crossing: bytes a second between a device's own memory and the host's; 0: it has
 * none. */
struct rb_cluster_link rb_cluster_inside(double copied, double crossing);

/* Is there a device that only a profile can cost? */
bool rb_cluster_unmeasured(const struct rb_cluster *cluster);

/* The longest latency on the way from the first of `devices` devices to the others. */
double rb_cluster_latency(const struct rb_cluster *cluster, uint32_t devices);

void rb_cluster_done(struct rb_cluster *cluster);

#endif
