/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of what the cluster consists of: nodes and devices, and how they do. */
#include "daemon/facts/members.h"
#include "daemon/rpc/methods_inside.h"

#include <string.h>

/* A node's state, and until when and why it is to be left. */
void rb_node_describe(const struct rb_facts *facts, const Rb__Node *node, json_t *row)
{
    const struct rb_fact *cordon = rb_fact_find(&facts->cordons, node->name);
    uint64_t deadline = rb_node_deadline(facts, node->name);
    const char *state = node->leaving                     ? "leaving"
                        : cordon && cordon->cordon->drain ? "drained"
                        : cordon                          ? "cordoned"
                                                          : "ready";

    json_object_set_new(row, "state", json_string(state));
    if (deadline != UINT64_MAX)
        json_object_set_new(row, "deadline", json_integer((json_int_t)deadline));
    if (cordon && cordon->cordon->reason)
        json_object_set_new(row, "reason", json_string(cordon->cordon->reason));
    if (node->missing)
        json_object_set_new(row, "missing", json_string(node->missing));
}

/* What the planner goes by. */
static void describe_measured(const Rb__Node *node, json_t *row)
{
    if (node->has_memory)
        json_object_set_new(row, "memory", json_integer((json_int_t)node->memory));
    if (node->has_network_bandwidth) {
        json_object_set_new(row, "networkBandwidth", json_real(node->network_bandwidth));
        json_object_set_new(row, "networkLatency", json_real(node->network_latency));
    }
}

json_t *rb_rows_of_nodes(const struct rb_facts *facts)
{
    json_t *items = json_array();

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;
        json_t *row =
            json_pack("{s:s,s:s,s:I,s:s,s:I}", "name", node->name, "address", node->address,
                      "devices", (json_int_t)node->n_devices, "numericClass", node->numeric_class,
                      "started", (json_int_t)node->started);

        if (node->http)
            json_object_set_new(row, "http", json_string(node->http));
        describe_measured(node, row);
        rb_node_describe(facts, node, row);
        json_array_append_new(items, row);
    }
    return items;
}

/* Where the device itself does not say that it is slow, the others of its job do. */
static void describe_pace(const struct rb_job_facts *job, const char *node, uint32_t device,
                          json_t *row)
{
    const Rb__Straggler *one =
        job->state.message ? rb_straggler_told(job->state.state, node, device) : NULL;

    if (one && !json_object_get(row, "slow"))
        json_object_set_new(
            row, "slow",
            json_sprintf("took %.3g ms for a microbatch, the others of its kind %.3g ms",
                         one->microbatch_us / 1e3, one->others_us / 1e3));
}

/* The job that has a device, and what its worker says. */
static void describe_use(const struct rb_facts *facts, const char *node, uint32_t device,
                         json_t *row)
{
    for (size_t j = 0; j < facts->n_jobs; j++) {
        const struct rb_fact *report = rb_facts_report(&facts->jobs[j], node, device);
        const ProtobufCEnumValue *state;

        if (!report || !facts->jobs[j].job.message ||
            report->worker->state == RB__WORKER_REPORT__STATE__DEAD ||
            report->worker->state == RB__WORKER_REPORT__STATE__FAILED)
            continue;
        state = protobuf_c_enum_descriptor_get_value(&rb__worker_report__state__descriptor,
                                                     (int)report->worker->state);
        json_object_set_new(row, "job", json_string(facts->jobs[j].job.job->name));
        json_object_set_new(row, "worker", json_string(report->worker->worker));
        json_object_set_new(row, "state", json_string(state ? state->name : "?"));
        if (report->worker->has_pid)
            json_object_set_new(row, "pid", json_integer(report->worker->pid));
        describe_pace(&facts->jobs[j], node, device, row);
    }
}

json_t *rb_rows_of_devices(const struct rb_facts *facts)
{
    json_t *items = json_array();

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++) {
            const Rb__Device *device = node->devices[d];
            json_t *row = json_pack("{s:s,s:I,s:s,s:o,s:s,s:n}", "node", node->name, "device",
                                    (json_int_t)device->index, "kind", device->kind, "name",
                                    rb_json_text(device->name), "numericClass",
                                    rb_facts_class(node, device), "job");

            if (device->has_flops) {
                json_object_set_new(row, "flops", json_real(device->flops));
                json_object_set_new(row, "bandwidth", json_real(device->bandwidth));
            }
            if (device->sick)
                json_object_set_new(row, "sick", json_string(device->sick));
            if (device->slow)
                json_object_set_new(row, "slow", json_string(device->slow));
            if (device->has_used)
                json_object_set_new(row, "used", json_integer((json_int_t)device->used));
            describe_use(facts, node->name, device->index, row);
            json_array_append_new(items, row);
        }
    }
    return items;
}

json_t *rb_notes_on(struct rb_methods *methods, const char *kind)
{
    const struct rb_facts *facts = rb_methods_facts(methods);
    const char *refused = rb_store_refused(methods->daemon->store);
    json_t *notes = json_array();

    if (refused)
        json_array_append_new(notes,
                              json_sprintf("etcd takes no writes (%s): this is how it was "
                                           "when it last did; `metrics` has the newest steps",
                                           refused));
    if (!rb_store_connected(methods->daemon->store))
        json_array_append_new(notes, json_string("etcd does not answer: this is how it was when it "
                                                 "last did; `metrics` has the newest steps"));

    for (size_t i = 0; !strcmp(kind, "devices") && i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        if (node->missing)
            json_array_append_new(notes, json_sprintf("node %s: %s", node->name, node->missing));
    }
    return notes;
}
