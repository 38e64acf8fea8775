/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics: what this node knows, as Prometheus reads it.
 *
 * facts, devices > [metrics] > /metrics
 *
 * Pure.  Each node tells of itself; of jobs the coordinator alone, so that sums over nodes are
 * right.  Jobs that are over are counted by phase, and have no other series. */
#ifndef RB_DAEMON_HTTP_METRICS_H
#define RB_DAEMON_HTTP_METRICS_H

#include "base/buffer.h"
#include "daemon/facts/facts.h"

struct rb_certificate;
struct rb_devices;

struct rb_metrics {
    const char *version, *node;
    bool ready, connected, leads;
    size_t workers; /* alive here */
    const struct rb_devices *devices;
    const struct rb_certificate *certificates;
    size_t n_certificates;
    const struct rb_facts *facts;
    uint64_t now; /* unix ms */
};

void rb_metrics_write(const struct rb_metrics *metrics, struct rb_buffer *out);

/* The part of it that the coordinator tells (metrics_jobs.c). */
void rb_metrics_jobs(const struct rb_facts *facts, uint64_t now, struct rb_buffer *out);

#endif
