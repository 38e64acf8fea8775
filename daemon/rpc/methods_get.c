/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that list what facts hold: get, events. */
#include "daemon/rpc/methods_inside.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "daemon/facts/shares.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARES_LISTED = 16 };

json_t *rb_json_text(const char *value)
{
    return value ? json_string(value) : json_null();
}

json_t *rb_json_real(bool there, double value)
{
    if (!there)
        return json_null();
    if (isfinite(value))
        return json_real(value);
    return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

json_t *rb_job_row(const struct rb_job_facts *job)
{
    const Rb__Configuration *active = rb_job_active(job);
    const Rb__DevicesSpec *devices = job->job.job->spec->devices;

    return json_pack(
        "{s:s,s:s,s:s,s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "name", job->job.job->name, "id",
        job->id, "phase", rb_phase_text(job->state.state->phase), "reason",
        rb_json_text(job->state.state->reason), "step", (json_int_t)rb_job_step(job), "steps",
        (json_int_t)job->job.job->steps, "devices", (json_int_t)(active ? active->n_members : 0),
        "want", (json_int_t)job->wish.wish->want, "min", (json_int_t)(devices ? devices->min : 1),
        "max", (json_int_t)(devices ? devices->max : 0), "priority",
        (json_int_t)job->job.job->spec->priority, "created", (json_int_t)job->job.job->created,
        "loss",
        rb_json_real(job->progress.message,
                     job->progress.message ? job->progress.progress->loss : 0));
}

json_t *rb_receipt_json(const Rb__Receipt *receipt)
{
    return json_pack(
        "{s:I,s:I,s:I,s:I,s:f,s:f,s:I,s:I,s:I,s:I}", "from", (json_int_t)receipt->from, "to",
        (json_int_t)receipt->to, "configuration", (json_int_t)receipt->configuration, "step",
        (json_int_t)receipt->step, "stall_ms", receipt->stall_ms, "ready_ms", receipt->ready_ms,
        "bytes_moved", (json_int_t)receipt->bytes_moved, "steps_lost",
        (json_int_t)receipt->steps_lost, "samples_repeated", (json_int_t)receipt->samples_repeated,
        "samples_skipped", (json_int_t)receipt->samples_skipped);
}

static int by_age(const void *a, const void *b)
{
    const struct rb_job_facts *const *x = a, *const *y = b;
    uint64_t one = (*x)->job.job->created, other = (*y)->job.job->created;

    return one != other ? (one > other) - (one < other)
                        : strcmp((*x)->job.job->name, (*y)->job.job->name);
}

/* Facts have jobs in the order of their ids, which are random: here they are by age. */
static json_t *get_jobs(const struct rb_facts *facts, const struct rb_job_facts *only)
{
    const struct rb_job_facts **jobs = rb_alloc(sizeof(*jobs) * (facts->n_jobs + 1));
    json_t *items = json_array();
    size_t n = 0;

    for (size_t i = 0; i < facts->n_jobs; i++)
        if (rb_job_shown(&facts->jobs[i]) && (!only || only == &facts->jobs[i]))
            jobs[n++] = &facts->jobs[i];
    qsort(jobs, n, sizeof(*jobs), by_age);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(items, rb_job_row(jobs[i]));
    free(jobs);
    return items;
}

static json_t *get_checkpoints(const struct rb_job_facts *job)
{
    json_t *items = json_array();

    for (size_t i = 0; i < job->checkpoints.n; i++)
        json_array_append_new(items, rb_reflect_to_json(job->checkpoints.at[i].message, true));
    return items;
}

/* "8 8 4 2", or of many ranks the largest and the smallest; null: a pipeline. */
static json_t *shares_text(const struct rb_job_facts *job, const Rb__Configuration *conf)
{
    struct rb_arena arena = {0};
    const uint32_t *shares = rb_shares_counts(conf, job->job.job->microbatches, &arena);
    uint32_t most = 0, least = UINT32_MAX;
    struct rb_buffer text = {0};
    json_t *json = NULL;

    for (size_t m = 0; shares && m < conf->n_members; m++) {
        most = shares[m] > most ? shares[m] : most;
        least = shares[m] < least ? shares[m] : least;
        rb_buffer_format(&text, "%s%" PRIu32, m ? " " : "", shares[m]);
    }
    if (shares)
        json = conf->n_members > SHARES_LISTED
                   ? json_sprintf("%" PRIu32 " to %" PRIu32, most, least)
                   : json_string(text.data);
    rb_buffer_done(&text);
    rb_arena_done(&arena);
    return json ? json : json_null();
}

static json_t *get_configurations(const struct rb_job_facts *job)
{
    json_t *items = json_array();

    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;
        json_t *row = rb_reflect_to_json(&conf->base, true);

        json_object_set_new(row, "devices", json_integer((json_int_t)conf->n_members));
        json_object_set_new(row, "shares", shares_text(job, conf));
        if (conf->receipt)
            json_object_set_new(row, "receipt", rb_receipt_json(conf->receipt));
        json_array_append_new(items, row);
    }
    return items;
}

/* What each job has of a kind, or one of them has, with the job's name beside it. */
static json_t *of_jobs(const struct rb_facts *facts, const struct rb_job_facts *only,
                       json_t *(*get)(const struct rb_job_facts *job))
{
    json_t *items = json_array(), *own, *row;
    size_t i;

    for (size_t j = 0; j < facts->n_jobs; j++) {
        const struct rb_job_facts *job = &facts->jobs[j];

        if (!rb_job_shown(job) || (only && only != job))
            continue;
        own = get(job);
        json_array_foreach(own, i, row)
            json_object_set_new(row, "job", json_string(job->job.job->name));
        json_array_extend(items, own);
        json_decref(own);
    }
    return items;
}

/* Is the event of the job that has this name (or id) now, if there is one, else of any that had it?
 */
static bool speaks_of(const Rb__Event *event, const char *job, const struct rb_job_facts *present)
{
    if (present && event->job_id)
        return !strcmp(event->job_id, present->id);
    return event->job && !strcmp(event->job, present ? present->job.job->name : job);
}

static json_t *get_events(const struct rb_facts *facts, const char *job, const char *after)
{
    const struct rb_job_facts *present = job ? rb_methods_job_named(facts, job) : NULL;
    json_t *items = json_array();

    for (size_t i = 0; i < facts->events.n; i++) {
        const struct rb_fact *fact = &facts->events.at[i];
        const Rb__Event *event = fact->event;

        if (after && strcmp(fact->name, after) <= 0)
            continue;
        if (job && !speaks_of(event, job, present))
            continue;
        json_array_append_new(
            items, json_pack("{s:s,s:I,s:o,s:o,s:s,s:s}", "key", fact->name, "time",
                             (json_int_t)event->time, "job", rb_json_text(event->job), "node",
                             rb_json_text(event->node), "kind", event->kind, "text", event->text));
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
        items = rb_rows_of_nodes(facts);
    else if (!strcmp(kind, "devices"))
        items = rb_rows_of_devices(facts);
    else if (!strcmp(kind, "configurations"))
        items = of_jobs(facts, only, get_configurations);
    else if (!strcmp(kind, "checkpoints"))
        items = of_jobs(facts, only, get_checkpoints);
    else if (!strcmp(kind, "events"))
        items = get_events(facts, only ? only->job.job->name : NULL, NULL);
    else {
        rb_request_failf(request, RB_EINVAL,
                         "there are no %s: say jobs, nodes, devices, configurations, checkpoints "
                         "or events",
                         kind);
        return;
    }
    rb_request_reply(request,
                     json_pack("{s:o,s:o}", "items", items, "notes", rb_notes_on(context, kind)));
}

static void events(struct rb_request *request, void *context)
{
    const json_t *body = rb_request_body(request);
    const char *job = json_string_value(json_object_get(body, "job"));
    const struct rb_facts *facts = rb_methods_facts(context);
    json_t *items = get_events(facts, job, json_string_value(json_object_get(body, "after")));

    if (job && !json_array_size(items) && !rb_methods_job_named(facts, job)) {
        json_decref(items);
        rb_request_failf(request, RB_ENOTFOUND, "there is no job '%s'", job);
        return;
    }
    rb_request_reply(request, json_pack("{s:o}", "items", items));
}

const struct rb_server_method rb_methods_get[] = {
    {"get", true, get, .reads = true},
    {"events", true, events, .reads = true},
    {NULL, false, NULL},
};
