/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that change what users wish: pause, resume, cancel, delete, node. */
#include "daemon/rpc/methods_inside.h"

#include "base/clock.h"
#include "daemon/facts/members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pause, resume, cancel, delete ------------------------------------------------------------*/

static void wish_commit(struct rb_request *request, struct rb_methods *methods,
                        const struct rb_job_facts *job, const Rb__Wish *wish,
                        void (*again)(struct rb_request *request, void *context))
{
    struct rb_writes writes = {0};

    rb_writes_put(&writes, job->wish.revision, &wish->base, "jobs/%s/wish", job->id);
    rb_methods_commit(methods, request, &writes, NULL,
                      json_pack("{s:s,s:s}", "job", job->job.job->name, "phase",
                                rb_phase_text(job->state.state->phase)),
                      again);
}

static void set_paused(struct rb_request *request, void *context, bool paused,
                       void (*again)(struct rb_request *request, void *context))
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    Rb__Wish wish;

    if (!job || rb_methods_refuse_ending(request, job))
        return;
    wish = *job->wish.wish;
    wish.has_paused = 1;
    wish.paused = paused;
    wish_commit(request, context, job, &wish, again);
}

static void pause_job(struct rb_request *request, void *context)
{
    set_paused(request, context, true, pause_job);
}

static void resume_job(struct rb_request *request, void *context)
{
    set_paused(request, context, false, resume_job);
}

static void cancel_job(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    Rb__Wish wish;

    if (!job)
        return;
    if (job->state.state->phase != RB__PHASE__Cancelled && rb_methods_refuse_final(request, job))
        return;
    wish = *job->wish.wish;
    wish.has_cancelled = wish.cancelled = 1;
    wish.has_keep = 1;
    wish.keep = !json_is_false(json_object_get(rb_request_body(request), "keep"));
    wish_commit(request, context, job, &wish, cancel_job);
}

static void delete_job(struct rb_request *request, void *context)
{
    const struct rb_job_facts *job = rb_methods_job(context, request);
    Rb__Wish wish;

    if (!job)
        return;
    wish = *job->wish.wish;
    wish.has_deleted = wish.deleted = 1;
    wish_commit(request, context, job, &wish, delete_job);
}

/* ---- node -------------------------------------------------------------------------------------*/

static bool uses(const struct rb_job_facts *job, const char *node)
{
    for (size_t c = 0; c < job->configurations.n; c++) {
        const Rb__Configuration *conf = job->configurations.at[c].configuration;

        for (size_t m = 0; rb_configuration_live(conf) && m < conf->n_members; m++)
            if (!strcmp(conf->members[m]->node, node))
                return true;
    }
    for (size_t i = 0; i < job->workers.n; i++) {
        const struct rb_fact *fact = &job->workers.at[i];
        size_t size = strlen(node);

        if (!strncmp(fact->name, node, size) && fact->name[size] == ':' &&
            fact->worker->state != RB__WORKER_REPORT__STATE__DEAD &&
            fact->worker->state != RB__WORKER_REPORT__STATE__FAILED)
            return true;
    }
    return false;
}

static json_t *jobs_on(const struct rb_facts *facts, const char *node)
{
    json_t *jobs = json_array();

    for (size_t i = 0; i < facts->n_jobs; i++)
        if (facts->jobs[i].job.message && uses(&facts->jobs[i], node))
            json_array_append_new(jobs, json_string(facts->jobs[i].job.job->name));
    return jobs;
}

/* Until when a drain is to be over: `deadline` ms from now, or at `until`; 0: no such time. */
static bool read_deadline(struct rb_request *request, uint64_t now, uint64_t *ret_until)
{
    int64_t deadline, until;

    if (!rb_methods_number(request, "deadline", -1, &deadline) ||
        !rb_methods_number(request, "until", 0, &until))
        return false;
    *ret_until = deadline >= 0 ? now + (uint64_t)deadline : until > 0 ? (uint64_t)until : 0;
    return true;
}

static void write_node_event(struct rb_writes *writes, const char *node, const char *verb,
                             uint64_t now, uint64_t until)
{
    Rb__Event event = RB__EVENT__INIT;
    char text[320], by[RB_CLOCK_TEXT];

    snprintf(text, sizeof(text), "node %s: %s", node,
             !strcmp(verb, "drain")    ? "jobs are to leave it"
             : !strcmp(verb, "cordon") ? "nothing new is placed on it"
                                       : "it may be used again");
    if (until)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " within %.0f s, by %s",
                 until > now ? (double)(until - now) / 1e3 : 0, rb_clock_text(until, by));
    event.time = now;
    event.node = (char *)node;
    event.kind = (char *)verb;
    event.text = text;
    rb_writes_event(writes, RB_ANY_REVISION, &event, "%s-%s", verb, node);
}

static void write_cordon(struct rb_writes *writes, const struct rb_fact *cordon, const char *node,
                         bool drain, uint64_t now, uint64_t until)
{
    Rb__Cordon value = RB__CORDON__INIT;

    value.since = now;
    value.has_drain = drain;
    value.drain = drain;
    value.has_deadline = until != 0;
    value.deadline = until;
    rb_writes_put(writes, cordon ? cordon->revision : RB_ABSENT, &value.base, "cordons/%s", node);
}

static bool same_cordon(const struct rb_fact *cordon, bool drain, uint64_t until)
{
    return cordon && cordon->cordon->drain == drain && cordon->cordon->deadline == until;
}

static json_t *node_json(const struct rb_facts *facts, const char *name, bool drained,
                         uint64_t until)
{
    return json_pack("{s:s,s:o,s:b,s:o}", "node", name, "jobs", jobs_on(facts, name), "drained",
                     drained, "until", until ? json_integer((json_int_t)until) : json_null());
}

/* drain, cordon, uncordon; or `look`, which changes nothing: for a caller that waits until the node
 * is left. */
static void change_node(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_facts *facts = rb_methods_facts(methods);
    const struct rb_fact *cordon;
    const char *name, *verb;
    struct rb_why why = {{0}};
    struct rb_writes writes = {0};
    uint64_t now = rb_clock_unix_ms(), until = 0;
    bool drain, looks, known;
    int err = rb_request_string(request, "node", &name, &why);

    if (!err)
        err = rb_request_string(request, "verb", &verb, &why);
    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    drain = !strcmp(verb, "drain");
    looks = !strcmp(verb, "look");
    known = drain || looks || !strcmp(verb, "cordon") || !strcmp(verb, "uncordon");
    cordon = rb_fact_find(&facts->cordons, name);
    if (!known || (!cordon && !rb_fact_find(&facts->nodes, name))) {
        rb_request_failf(request, known ? RB_ENOTFOUND : RB_EINVAL,
                         known ? "there is no node '%s'" : "%s: say drain, cordon or uncordon",
                         known ? name : verb);
        return;
    }
    if (looks) {
        drain = cordon && cordon->cordon->drain;
        rb_request_reply(request,
                         node_json(facts, name, drain, drain ? cordon->cordon->deadline : 0));
        return;
    }
    if (drain && !read_deadline(request, now, &until))
        return;
    if (!strcmp(verb, "uncordon")) {
        if (cordon)
            rb_writes_delete(&writes, cordon->revision, "cordons/%s", name);
    } else if (!same_cordon(cordon, drain, until)) {
        write_cordon(&writes, cordon, name, drain, now, until);
    }
    json_t *reply = node_json(facts, name, drain, until);
    if (!writes.n) {
        rb_request_reply(request, reply);
        return;
    }
    write_node_event(&writes, name, verb, now, until);
    rb_methods_commit(methods, request, &writes, NULL, reply, change_node);
}

const struct rb_server_method rb_methods_change[] = {
    {"pause", true, pause_job},   {"resume", true, resume_job}, {"cancel", true, cancel_job},
    {"delete", true, delete_job}, {"node", true, change_node},  {NULL, false, NULL},
};
