/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that only look at facts: version, get, status, describe, receipt, events. */
#include "daemon/methods_inside.h"

#include "daemon/members.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static json_t *text(const char *value)
{
    return value ? json_string(value) : json_null();
}

/* JSON has no word for what is not finite. */
static json_t *real(bool there, double value)
{
    return there && isfinite(value) ? json_real(value) : json_null();
}

static void version(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_facts *facts = rb_methods_facts(methods);

    rb_request_reply(request,
                     json_pack("{s:s,s:s,s:o}", "version", RUBATO_VERSION, "node",
                               methods->daemon->settings->node, "leader",
                               text(facts->leader.message ? facts->leader.leader->node : NULL)));
}

static const Rb__Configuration *active_of(const struct rb_job_facts *job)
{
    const struct rb_fact *fact = rb_facts_configuration(job, job->state.state->active);

    return fact ? fact->configuration : NULL;
}

static int64_t step_of(const struct rb_job_facts *job)
{
    const Rb__JobState *state = job->state.state;

    if (state->phase == RB__PHASE__Succeeded)
        return job->job.job->steps;
    if (job->progress.message &&
        (state->active || !state->parked || job->progress.progress->step > state->parked->step))
        return job->progress.progress->step;
    return state->parked ? state->parked->step : job->job.job->resume_step;
}

/* ---- get ----------------------------------------------------------------------------------------
 */

static json_t *job_row(const struct rb_job_facts *job)
{
    const Rb__Configuration *active = active_of(job);
    const Rb__DevicesSpec *devices = job->job.job->spec->devices;

    return json_pack(
        "{s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "name", job->job.job->name, "id",
        job->id, "phase", rb_phase_text(job->state.state->phase), "reason",
        text(job->state.state->reason), "step", (json_int_t)step_of(job), "steps",
        (json_int_t)job->job.job->steps, "devices", (json_int_t)(active ? active->n_members : 0),
        "want", (json_int_t)job->wish.wish->want, "min", (json_int_t)(devices ? devices->min : 1),
        "max", (json_int_t)(devices ? devices->max : 0), "priority",
        (json_int_t)job->job.job->spec->priority, "created", (json_int_t)job->job.job->created,
        "loss",
        real(job->progress.message, job->progress.message ? job->progress.progress->loss : 0));
}

static bool shown(const struct rb_job_facts *job)
{
    return job->job.message && job->wish.message && job->state.message &&
           !job->wish.wish->deleted && job->job.job->spec;
}

static json_t *get_jobs(const struct rb_facts *facts, const struct rb_job_facts *only)
{
    json_t *items = json_array();

    for (size_t i = 0; i < facts->n_jobs; i++)
        if (shown(&facts->jobs[i]) && (!only || only == &facts->jobs[i]))
            json_array_append_new(items, job_row(&facts->jobs[i]));
    return items;
}

static json_t *get_nodes(const struct rb_facts *facts)
{
    json_t *items = json_array();

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;
        const struct rb_fact *cordon = rb_fact_find(&facts->cordons, node->name);
        const char *state = node->leaving                     ? "leaving"
                            : cordon && cordon->cordon->drain ? "drained"
                            : cordon                          ? "cordoned"
                                                              : "ready";

        json_array_append_new(items,
                              json_pack("{s:s,s:s,s:s,s:I,s:s,s:I}", "name", node->name, "state",
                                        state, "address", node->address, "devices",
                                        (json_int_t)node->n_devices, "numericClass",
                                        node->numeric_class, "started", (json_int_t)node->started));
    }
    return items;
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
    }
}

static json_t *get_devices(const struct rb_facts *facts)
{
    json_t *items = json_array();

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++) {
            const Rb__Device *device = node->devices[d];
            json_t *row = json_pack("{s:s,s:I,s:s,s:o,s:n}", "node", node->name, "device",
                                    (json_int_t)device->index, "kind", device->kind, "name",
                                    text(device->name), "job");

            describe_use(facts, node->name, device->index, row);
            json_array_append_new(items, row);
        }
    }
    return items;
}

/* Facts of all jobs, or one, as they are, with the job's name beside them. */
static json_t *get_facts(const struct rb_facts *facts, const struct rb_job_facts *only,
                         bool checkpoints)
{
    json_t *items = json_array();

    for (size_t j = 0; j < facts->n_jobs; j++) {
        const struct rb_job_facts *job = &facts->jobs[j];
        const struct rb_fact_list *list = checkpoints ? &job->checkpoints : &job->configurations;

        for (size_t i = 0; shown(job) && (!only || only == job) && i < list->n; i++) {
            json_t *row = rb_reflect_to_json(list->at[i].message, true);

            json_object_set_new(row, "job", json_string(job->job.job->name));
            if (!checkpoints)
                json_object_set_new(row, "devices",
                                    json_integer((json_int_t)list->at[i].configuration->n_members));
            json_array_append_new(items, row);
        }
    }
    return items;
}

static json_t *get_events(const struct rb_facts *facts, const char *job, const char *after)
{
    json_t *items = json_array();

    for (size_t i = 0; i < facts->events.n; i++) {
        const struct rb_fact *fact = &facts->events.at[i];
        const Rb__Event *event = fact->event;

        if (after && strcmp(fact->name, after) <= 0)
            continue;
        if (job && (!event->job || strcmp(event->job, job) != 0))
            continue;
        json_array_append_new(items, json_pack("{s:s,s:I,s:o,s:o,s:s,s:s}", "key", fact->name,
                                               "time", (json_int_t)event->time, "job",
                                               text(event->job), "node", text(event->node), "kind",
                                               event->kind, "text", event->text));
    }
    return items;
}

static void get(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_facts *facts = rb_methods_facts(methods);
    const struct rb_job_facts *only = NULL;
    const char *kind;
    struct rb_why why = {{0}};
    json_t *items;
    int err = rb_request_string(request, "kind", &kind, &why);

    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    if (json_is_string(json_object_get(rb_request_body(request), "job"))) {
        only = rb_methods_job(methods, request);
        if (!only)
            return;
    }
    if (!strcmp(kind, "jobs"))
        items = get_jobs(facts, only);
    else if (!strcmp(kind, "nodes"))
        items = get_nodes(facts);
    else if (!strcmp(kind, "devices"))
        items = get_devices(facts);
    else if (!strcmp(kind, "configurations"))
        items = get_facts(facts, only, false);
    else if (!strcmp(kind, "checkpoints"))
        items = get_facts(facts, only, true);
    else if (!strcmp(kind, "events"))
        items = get_events(facts, only ? only->job.job->name : NULL, NULL);
    else {
        rb_request_failf(request, RB_EINVAL,
                         "there are no %s: say jobs, nodes, devices, configurations, checkpoints "
                         "or events",
                         kind);
        return;
    }
    rb_request_reply(request, json_pack("{s:o}", "items", items));
}

static void events(struct rb_request *request, void *context)
{
    const json_t *body = rb_request_body(request);
    const char *job = json_string_value(json_object_get(body, "job"));
    const struct rb_facts *facts = rb_methods_facts(context);
    json_t *items = get_events(facts, job, json_string_value(json_object_get(body, "after")));

    if (job && !json_array_size(items) && !rb_methods_job_named(facts, job)) {
        json_decref(items);
        rb_request_failf(request, RB_ENOTFOUND, "there is no job %s", job);
        return;
    }
    rb_request_reply(request, json_pack("{s:o}", "items", items));
}

/* ---- status, describe ---------------------------------------------------------------------------
 */

static const char *kind_of(const struct rb_facts *facts, const char *node, uint32_t device)
{
    const struct rb_fact *fact = rb_fact_find(&facts->nodes, node);

    for (size_t d = 0; fact && d < fact->node->n_devices; d++)
        if (fact->node->devices[d]->index == device)
            return fact->node->devices[d]->kind;
    return "?";
}

static json_t *devices_of(const struct rb_facts *facts, const struct rb_job_facts *job)
{
    const Rb__Configuration *active = active_of(job);
    json_t *devices = json_array();

    for (size_t m = 0; active && m < active->n_members; m++) {
        const Rb__Member *member = active->members[m];
        const struct rb_fact *report = rb_facts_member(job, active, m);
        json_t *row =
            json_pack("{s:s,s:I,s:s}", "node", member->node, "device", (json_int_t)member->device,
                      "kind", kind_of(facts, member->node, member->device));

        json_object_set_new(row, "pid",
                            report && report->worker->has_pid ? json_integer(report->worker->pid)
                                                              : json_null());
        json_array_append_new(devices, row);
    }
    return devices;
}

static void add_progress(json_t *body, const struct rb_job_facts *job)
{
    static const Rb__Progress none = RB__PROGRESS__INIT;
    const Rb__Progress *progress = job->progress.message ? job->progress.progress : &none;

    json_object_set_new(body, "samples", json_integer((json_int_t)progress->samples));
    json_object_set_new(body, "throughput", real(true, progress->throughput));
    json_object_set_new(body, "evalLoss", real(progress->has_eval_loss, progress->eval_loss));
    json_object_set_new(body, "evalAccuracy",
                        real(progress->has_eval_accuracy, progress->eval_accuracy));
}

static void add_plan(json_t *body, const struct rb_job_facts *job)
{
    const Rb__Configuration *shown_one = active_of(job);

    if (!shown_one && job->configurations.n)
        shown_one = job->configurations.at[job->configurations.n - 1].configuration;
    json_object_set_new(body, "configuration",
                        json_integer(shown_one ? (json_int_t)shown_one->number : 0));
    json_object_set_new(body, "plan",
                        json_pack("{s:o}", "summary", text(shown_one ? shown_one->plan : NULL)));
}

static void status(struct rb_request *request, void *context)
{
    const struct rb_facts *facts = rb_methods_facts(context);
    const struct rb_job_facts *job = rb_methods_job(context, request);
    json_t *body;

    if (!job)
        return;
    body = job_row(job);
    add_progress(body, job);
    add_plan(body, job);
    json_object_set_new(body, "devices", devices_of(facts, job));
    json_object_set_new(body, "summary", text(job->job.job->summary));
    json_object_set_new(body, "microbatches", json_integer(job->job.job->microbatches));
    json_object_set_new(
        body, "checkpoint",
        job->checkpoints.n
            ? rb_reflect_to_json(job->checkpoints.at[job->checkpoints.n - 1].message, true)
            : json_null());
    rb_request_reply(request, body);
}

static json_t *list_json(const struct rb_fact_list *list)
{
    json_t *items = json_array();

    for (size_t i = 0; i < list->n; i++) {
        json_t *row = rb_reflect_to_json(list->at[i].message, true);

        json_object_set_new(row, "key", json_string(list->at[i].name));
        json_array_append_new(items, row);
    }
    return items;
}

static void describe(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);

    if (!job)
        return;
    rb_request_reply(
        request,
        json_pack(
            "{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "job", rb_reflect_to_json(job->job.message, true),
            "wish", rb_reflect_to_json(job->wish.message, true), "state",
            rb_reflect_to_json(job->state.message, true), "configurations",
            list_json(&job->configurations), "workers", list_json(&job->workers), "progress",
            job->progress.message ? rb_reflect_to_json(job->progress.message, true) : json_null(),
            "checkpoints", list_json(&job->checkpoints)));
}

/* ---- receipt ------------------------------------------------------------------------------------
 */

static json_t *receipt_json(const Rb__Receipt *receipt)
{
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:I}", "from", (json_int_t)receipt->from, "to",
        (json_int_t)receipt->to, "configuration", (json_int_t)receipt->configuration, "step",
        (json_int_t)receipt->step, "stall_ms", receipt->stall_ms, "ready_ms", receipt->ready_ms,
        "bytes_moved", (json_int_t)receipt->bytes_moved, "steps_lost",
        (json_int_t)receipt->steps_lost, "samples_repeated", (json_int_t)receipt->samples_repeated,
        "samples_skipped", (json_int_t)receipt->samples_skipped);
}

static bool all_pinned(const Rb__Wish *wish, const Rb__Configuration *conf)
{
    char name[320];

    for (size_t m = 0; wish->n_devices && m < conf->n_members; m++) {
        bool found = false;

        snprintf(name, sizeof(name), "%s:%" PRIu32, conf->members[m]->node,
                 conf->members[m]->device);
        for (size_t i = 0; i < wish->n_devices && !found; i++)
            found = !strcmp(wish->devices[i], name);
        if (!found)
            return false;
    }
    return true;
}

/* The configuration that answered the wish of that time: the first behind it with as many devices
 * as are wanted.  A newer wish may have come between; then any one that was asked for exactly then.
 */
static const Rb__Configuration *answer_to(const struct rb_job_facts *job, uint64_t asked)
{
    const Rb__Wish *wish = job->wish.wish;

    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;
        bool took_over = conf->state == RB__CONFIGURATION__STATE__ACTIVE ||
                         conf->state == RB__CONFIGURATION__STATE__RETIRED;

        if (!took_over || conf->asked < asked)
            continue;
        if (wish->asked > asked ? conf->asked == asked
                                : conf->n_members == wish->want && all_pinned(wish, conf))
            return conf;
    }
    return NULL;
}

static void receipt(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    const Rb__Configuration *conf;
    const char *reason;
    int64_t asked;
    json_t *body;

    if (!job || !rb_methods_number(request, "asked", 0, &asked))
        return;
    conf = answer_to(job, (uint64_t)asked);
    reason = job->state.state->reason;
    if (!conf && job->wish.wish->asked > (uint64_t)asked)
        reason = "a newer request has replaced it";
    else if (!conf && rb_phase_final(job->state.state->phase) && !reason)
        reason = "the job was over before";
    body = json_pack("{s:b,s:s,s:o}", "done", conf && conf->receipt, "phase",
                     rb_phase_text(job->state.state->phase), "reason", text(reason));
    if (conf)
        json_object_set_new(body, "configuration", json_integer(conf->number));
    if (conf && conf->receipt)
        json_object_set_new(body, "receipt", receipt_json(conf->receipt));
    rb_request_reply(request, body);
}

const struct rb_server_method rb_methods_look[] = {
    {"version", false, version},  {"get", true, get},         {"status", true, status},
    {"describe", true, describe}, {"receipt", true, receipt}, {"events", true, events},
    {NULL, false, NULL},
};
