/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/metrics.h"

#include "daemon/agent/devices.h"
#include "daemon/certificates.h"
#include "daemon/http/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void gauge(struct rb_buffer *out, const char *name, const char *help, double value)
{
    rb_text_family(out, name, "gauge", help);
    rb_text_sample(out, name, NULL, value);
}

static void write_node(const struct rb_metrics *metrics, struct rb_buffer *out)
{
    const struct rb_text_label build[] = {
        {"node", metrics->node}, {"version", metrics->version}, {0}};

    rb_text_family(out, "rubato_build_info", "gauge", "The node and its version of Rubato; 1.");
    rb_text_sample(out, "rubato_build_info", build, 1);
    gauge(out, "rubato_ready", "Whether /readyz says ok.", metrics->ready);
    gauge(out, "rubato_store_connected", "Whether etcd answers.", metrics->connected);
    gauge(out, "rubato_leader", "Whether this node coordinates.", metrics->leads);
    gauge(out, "rubato_workers", "Workers alive on this node.", (double)metrics->workers);
}

/* ---- Devices --------------------------------------------------------------------------------- */

enum { FREE, BUSY, STATES };
enum { GOOD, SLOW, SICK, HEALTHS };

static const char *const states[] = {"free", "busy"};
static const char *const healths[] = {"good", "slow", "sick"};

/* Does a worker that has not ended have the device? */
static bool is_busy(const struct rb_metrics *metrics, uint32_t device)
{
    for (size_t j = 0; j < metrics->facts->n_jobs; j++) {
        const struct rb_fact *report =
            rb_facts_report(&metrics->facts->jobs[j], metrics->node, device);

        if (report && report->worker->state != RB__WORKER_REPORT__STATE__DEAD &&
            report->worker->state != RB__WORKER_REPORT__STATE__FAILED)
            return true;
    }
    return false;
}

static void count_kind(const struct rb_metrics *metrics, const char *kind, struct rb_buffer *out)
{
    size_t counts[STATES][HEALTHS] = {{0}};

    for (size_t i = 0; i < metrics->devices->n; i++) {
        const Rb__Device *device = metrics->devices->at[i];

        if (!strcmp(device->kind, kind))
            counts[is_busy(metrics, device->index) ? BUSY : FREE][device->sick   ? SICK
                                                                  : device->slow ? SLOW
                                                                                 : GOOD]++;
    }
    for (size_t state = 0; state < STATES; state++)
        for (size_t health = 0; health < HEALTHS; health++) {
            const struct rb_text_label labels[] = {
                {"kind", kind}, {"state", states[state]}, {"health", healths[health]}, {0}};

            rb_text_sample(out, "rubato_node_devices", labels, (double)counts[state][health]);
        }
}

static bool has_kind(const struct rb_devices *devices, size_t n, const char *kind)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(devices->at[i]->kind, kind))
            return true;
    return false;
}

static void write_devices(const struct rb_metrics *metrics, struct rb_buffer *out)
{
    const struct rb_devices *devices = metrics->devices;

    if (devices->n)
        rb_text_family(out, "rubato_node_devices", "gauge",
                       "Devices of this node: whether a worker has them, and how they do.");
    for (size_t i = 0; i < devices->n; i++)
        if (!has_kind(devices, i, devices->at[i]->kind))
            count_kind(metrics, devices->at[i]->kind, out);
}

/* GPUs one by one: cores have no health of their own. */
static void write_gpus(const struct rb_metrics *metrics, const char *name, const char *help,
                       bool memory, struct rb_buffer *out)
{
    bool any = false;

    for (size_t i = 0; i < metrics->devices->n; i++) {
        const Rb__Device *device = metrics->devices->at[i];
        char number[16];
        const struct rb_text_label labels[] = {
            {"node", metrics->node}, {"device", number}, {"bus", device->bus}, {0}};

        if (!strcmp(device->kind, "cpu") || (memory && !device->has_used))
            continue;
        if (!any)
            rb_text_family(out, name, "gauge", help);
        any = true;
        snprintf(number, sizeof(number), "%" PRIu32, device->index);
        rb_text_sample(out, name, labels, memory ? (double)device->used : !device->sick);
    }
}

static void write_certificates(const struct rb_metrics *metrics, struct rb_buffer *out)
{
    const char *name = "rubato_certificate_expires_timestamp_seconds";

    if (metrics->n_certificates)
        rb_text_family(out, name, "gauge", "When others take this node's certificate no more.");
    for (size_t i = 0; i < metrics->n_certificates; i++) {
        const struct rb_text_label labels[] = {{"use", metrics->certificates[i].option + 2}, {0}};

        rb_text_sample(out, name, labels, (double)metrics->certificates[i].until);
    }
}

void rb_metrics_write(const struct rb_metrics *metrics, struct rb_buffer *out)
{
    write_node(metrics, out);
    write_certificates(metrics, out);
    write_devices(metrics, out);
    write_gpus(metrics, "rubato_device_healthy", "Whether a GPU of this node may be computed on.",
               false, out);
    write_gpus(metrics, "rubato_device_memory_used_bytes",
               "Memory of a GPU that is in use, by whomever.", true, out);
    if (metrics->leads)
        rb_metrics_jobs(metrics->facts, metrics->now, out);
}
