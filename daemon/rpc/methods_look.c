/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that look at one thing: version, status, describe, receipt. */
#include "daemon/rpc/methods_inside.h"

#include "base/version.h"
#include "daemon/facts/members.h"
#include "daemon/facts/shares.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void version(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_facts *facts = rb_methods_facts(methods);

    rb_request_reply(
        request,
        json_pack("{s:s,s:s,s:o}", "version", RUBATO_VERSION, "node",
                  methods->daemon->settings->node, "leader",
                  rb_json_text(facts->leader.message ? facts->leader.leader->node : NULL)));
}

/* ---- status, describe -------------------------------------------------------------------------*/

static const char *kind_of(const struct rb_facts *facts, const char *node, uint32_t device)
{
    const struct rb_fact *fact = rb_fact_find(&facts->nodes, node);

    for (size_t d = 0; fact && d < fact->node->n_devices; d++)
        if (fact->node->devices[d]->index == device)
            return fact->node->devices[d]->kind;
    return "?";
}

/* Add how the others do to a straggler that users were told of. */
static void add_straggler(json_t *row, const Rb__JobState *state, const Rb__Member *member)
{
    const Rb__Straggler *one = rb_straggler_told(state, member->node, member->device);

    if (one)
        json_object_set_new(row, "straggler",
                            json_pack("{s:I,s:f,s:f}", "since", (json_int_t)one->since,
                                      "microbatchMs", one->microbatch_us / 1e3, "othersMs",
                                      one->others_us / 1e3));
}

static json_t *devices_of(const struct rb_facts *facts, const struct rb_job_facts *job)
{
    const Rb__Configuration *active = rb_job_active(job);
    struct rb_arena arena = {0};
    const uint32_t *shares =
        active ? rb_shares_counts(active, job->job.job->microbatches, &arena) : NULL;
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
        if (shares)
            json_object_set_new(row, "microbatches", json_integer(shares[m]));
        if (shares && report && report->worker->microbatch_us)
            json_object_set_new(row, "microbatchMs",
                                json_real(report->worker->microbatch_us / 1e3));
        add_straggler(row, job->state.state, member);
        json_array_append_new(devices, row);
    }
    rb_arena_done(&arena);
    return devices;
}

static void add_progress(json_t *body, const struct rb_job_facts *job)
{
    static const Rb__Progress none = RB__PROGRESS__INIT;
    const Rb__Progress *progress = job->progress.message ? job->progress.progress : &none;

    json_object_set_new(body, "samples", json_integer((json_int_t)progress->samples));
    json_object_set_new(body, "throughput", rb_json_real(true, rb_job_pace(job)));
    json_object_set_new(body, "evalLoss",
                        rb_json_real(progress->has_eval_loss, progress->eval_loss));
    json_object_set_new(body, "evalAccuracy",
                        rb_json_real(progress->has_eval_accuracy, progress->eval_accuracy));
}

static void add_plan(json_t *body, const struct rb_job_facts *job)
{
    const Rb__Configuration *shown_one = rb_job_last(job);

    if (!shown_one && job->configurations.n)
        shown_one = job->configurations.at[job->configurations.n - 1].configuration;
    json_object_set_new(body, "configuration",
                        json_integer(shown_one ? (json_int_t)shown_one->number : 0));
    json_object_set_new(body, "plan",
                        json_pack("{s:o,s:o,s:o}", "summary",
                                  rb_json_text(shown_one ? shown_one->plan : NULL), "chosen",
                                  rb_json_text(shown_one ? shown_one->chosen : NULL), "expectedMs",
                                  rb_json_real(shown_one && shown_one->has_expected_ms,
                                               shown_one ? shown_one->expected_ms : 0)));
}

/* The newest checkpoint, and why one behind it could not be written. */
static void add_checkpoint(json_t *body, const struct rb_facts *facts,
                           const struct rb_job_facts *job)
{
    const struct rb_fact *kept =
        job->checkpoints.n ? &job->checkpoints.at[job->checkpoints.n - 1] : NULL;
    const Rb__Event *failed = rb_job_checkpoint_failed(facts, job);

    json_object_set_new(body, "checkpoint",
                        kept ? rb_reflect_to_json(kept->message, true) : json_null());
    json_object_set_new(body, "checkpointFailed", rb_json_text(failed ? failed->text : NULL));
}

static void status(struct rb_request *request, void *context)
{
    const struct rb_facts *facts = rb_methods_facts(context);
    const struct rb_job_facts *job = rb_methods_job(context, request);
    json_t *body;

    if (!job)
        return;
    body = rb_job_row(job);
    add_progress(body, job);
    add_plan(body, job);
    json_object_set_new(body, "devices", devices_of(facts, job));
    json_object_set_new(body, "summary", rb_json_text(job->job.job->summary));
    json_object_set_new(body, "microbatches", json_integer(job->job.job->microbatches));
    add_checkpoint(body, facts, job);
    json_object_set_new(body, "notes", rb_notes_on(context, "status"));
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

/* The nodes that it trains on. */
static json_t *nodes_of(const struct rb_facts *facts, const struct rb_job_facts *job)
{
    const Rb__Configuration *active = rb_job_active(job);
    json_t *items = json_array();

    for (size_t i = 0; active && i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;
        bool used = false;
        json_t *row;

        for (size_t m = 0; m < active->n_members && !used; m++)
            used = !strcmp(active->members[m]->node, node->name);
        if (!used)
            continue;
        row = json_pack("{s:s}", "name", node->name);
        rb_node_describe(facts, node, row);
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
            "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "nodes", nodes_of(rb_methods_facts(context), job),
            "job", rb_reflect_to_json(job->job.message, true), "wish",
            rb_reflect_to_json(job->wish.message, true), "state",
            rb_reflect_to_json(job->state.message, true), "configurations",
            list_json(&job->configurations), "workers", list_json(&job->workers), "progress",
            job->progress.message ? rb_reflect_to_json(job->progress.message, true) : json_null(),
            "checkpoints", list_json(&job->checkpoints)));
}

/* ---- receipt ----------------------------------------------------------------------------------*/

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

/* Is the configuration that trains what was wished for then, and nothing else prepared?  A death,
 * or a wish that was taken back, has led to it: nothing changes, and its receipt is that of another
 * wish. */
static bool stands(const struct rb_job_facts *job, uint64_t asked)
{
    const Rb__Configuration *active = rb_job_active(job);
    const Rb__Wish *wish = job->wish.wish;

    return wish->asked == asked && active && !job->state.state->next &&
           active->n_members == wish->want && all_pinned(wish, active);
}

/* The configuration that answered the wish of that time: the first one after the wish with as many
 * devices as are wanted.  Where a newer wish has come since, it is the one that was asked for at
 * exactly that time. */
static const Rb__Configuration *answer_to(const struct rb_job_facts *job, uint64_t asked)
{
    const Rb__Wish *wish = job->wish.wish;

    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        if (!rb_configuration_took_over(conf) || conf->asked < asked || conf->reason)
            continue; /* with a reason: it ended before its first step */
        if (wish->asked > asked ? conf->asked == asked
                                : conf->n_members == wish->want && all_pinned(wish, conf))
            return conf;
    }
    return NULL;
}

/* Does the configuration that was asked for then take over any moment, whatever was wished since?
 */
static bool flips(const struct rb_job_facts *job, uint64_t asked)
{
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        if (conf->state == RB__CONFIGURATION__STATE__GO && conf->asked == asked)
            return true;
    }
    return false;
}

static void receipt(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    const Rb__Configuration *conf;
    const char *reason;
    int64_t asked;
    bool replaced, unchanged;
    json_t *body;

    if (!job || !rb_methods_number(request, "asked", 0, &asked))
        return;
    conf = answer_to(job, (uint64_t)asked);
    unchanged = !conf && stands(job, (uint64_t)asked);
    replaced = !conf && job->wish.wish->asked > (uint64_t)asked && !flips(job, (uint64_t)asked);
    reason = job->state.state->reason;
    if (replaced)
        reason = "a newer request has replaced it";
    else if (!conf && rb_phase_final(job->state.state->phase) && !reason)
        reason = "the job was over before";
    body = json_pack("{s:b,s:b,s:s,s:o}", "done", replaced || unchanged || (conf && conf->receipt),
                     "unchanged", unchanged, "phase", rb_phase_text(job->state.state->phase),
                     "reason", rb_json_text(reason));
    if (conf)
        json_object_set_new(body, "configuration", json_integer(conf->number));
    if (conf && conf->receipt)
        json_object_set_new(body, "receipt", rb_receipt_json(conf->receipt));
    if (conf && conf->receipt)
        json_object_set_new(body, "plan",
                            json_pack("{s:o,s:o}", "summary", rb_json_text(conf->plan), "chosen",
                                      rb_json_text(conf->chosen)));
    rb_request_reply(request, body);
}

const struct rb_server_method rb_methods_look[] = {
    {"version", false, version},
    {"status", true, status, .reads = true},
    {"describe", true, describe, .reads = true},
    {"receipt", true, receipt, .reads = true},
    {NULL, false, NULL},
};
