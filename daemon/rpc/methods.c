/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/methods.h"

#include "daemon/facts/members.h"
#include "daemon/rpc/methods_inside.h"

#include <stdlib.h>
#include <string.h>

void rb_op_add(struct rb_op *op, struct rb_methods *methods, struct rb_request *request)
{
    op->methods = methods;
    op->request = request;
    op->next = methods->ops;
    op->self = &methods->ops;
    if (op->next)
        op->next->self = &op->next;
    methods->ops = op;
}

void rb_op_remove(struct rb_op *op)
{
    if (!op->self)
        return;
    *op->self = op->next;
    if (op->next)
        op->next->self = op->self;
    op->self = NULL;
}

static void on_facts(void *context)
{
    rb_methods_look_for_lost(context);
}

struct rb_methods *rb_methods_new(struct rb_daemon *daemon)
{
    struct rb_methods *methods = rb_alloc(sizeof(*methods));

    methods->daemon = daemon;
    methods->receipts = rb_receipts_new(methods);
    rb_server_add(daemon->server, rb_methods_look, methods);
    rb_server_add(daemon->server, rb_methods_change, methods);
    rb_server_add(daemon->server, rb_methods_get, methods);
    rb_server_add(daemon->server, rb_methods_cluster, methods);
    rb_server_add(daemon->server, rb_methods_resize, methods);
    rb_server_add(daemon->server, rb_methods_gather, methods);
    rb_server_add(daemon->server, rb_methods_state, methods);
    rb_server_add(daemon->server, rb_methods_submit, methods);
    rb_server_add(daemon->server, rb_methods_repeat, methods);
    rb_store_watch(daemon->store, on_facts, methods);
    return methods;
}

void rb_methods_lead(struct rb_methods *methods)
{
    rb_receipts_look(methods->receipts);
}

void rb_methods_free(struct rb_methods *methods)
{
    if (!methods)
        return;
    rb_receipts_free(methods->receipts);
    while (methods->ops) {
        struct rb_op *op = methods->ops;

        rb_op_remove(op);
        if (op->request)
            rb_request_when_gone(op->request, NULL, NULL);
        op->methods = NULL;
        op->request = NULL; /* the server answers what is open when it ends */
        if (op->let_go)
            op->let_go(op);
    }
    free(methods);
}

const struct rb_facts *rb_methods_facts(struct rb_methods *methods)
{
    return rb_store_facts(methods->daemon->store);
}

const struct rb_job_facts *rb_methods_job_named(const struct rb_facts *facts, const char *name)
{
    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *job = &facts->jobs[i];

        if (!job->job.message || !job->wish.message || !job->state.message ||
            job->wish.wish->deleted)
            continue;
        if (!strcmp(job->job.job->name, name) || !strcmp(job->id, name))
            return job;
    }
    return NULL;
}

const struct rb_job_facts *rb_methods_job(struct rb_methods *methods, struct rb_request *request)
{
    const struct rb_job_facts *job;
    struct rb_why why = {{0}};
    const char *name;
    int err = rb_request_string(request, "job", &name, &why);

    if (err) {
        rb_request_fail(request, err, &why);
        return NULL;
    }
    job = rb_methods_job_named(rb_methods_facts(methods), name);
    if (!job)
        rb_request_failf(request, RB_ENOTFOUND, "there is no job '%s'", name);
    return job;
}

bool rb_methods_refuse_final(struct rb_request *request, const struct rb_job_facts *job)
{
    Rb__Phase phase = job->state.state->phase;

    if (!rb_phase_final(phase))
        return false;
    rb_request_failf(request, RB_EREFUSED, "job %s is over (%s)", job->job.job->name,
                     rb_phase_text(phase));
    return true;
}

bool rb_methods_refuse_ending(struct rb_request *request, const struct rb_job_facts *job)
{
    if (rb_methods_refuse_final(request, job))
        return true;
    if (!job->wish.wish->cancelled)
        return false;
    rb_request_failf(request, RB_EREFUSED,
                     "job %s was cancelled: it is over as soon as its state is saved",
                     job->job.job->name);
    return true;
}

bool rb_methods_number(struct rb_request *request, const char *key, int64_t absent, int64_t *ret)
{
    const json_t *value = json_object_get(rb_request_body(request), key);

    if (!value || json_is_null(value)) {
        *ret = absent;
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        rb_request_failf(request, RB_EINVAL, "%s must be a whole number and not negative", key);
        return false;
    }
    *ret = json_integer_value(value);
    return true;
}

/* ---- Writes, then an answer -------------------------------------------------------------------*/

struct commit {
    struct rb_op op;
    json_t *body;
    char *makes;
    void (*again)(struct rb_request *request, void *context);
};

static void commit_free(struct commit *commit)
{
    json_decref(commit->body);
    free(commit->makes);
    free(commit);
}

static void committed(int err, const struct rb_why *why, void *context)
{
    struct commit *commit = context;
    struct rb_methods *methods = commit->op.methods;
    struct rb_request *request = commit->op.request;

    rb_op_remove(&commit->op);
    if (methods && err == RB_ESTALE && rb_request_gone(request))
        rb_request_fail(request, err, why); /* nobody is told: it is closed */
    else if (methods && err == RB_ESTALE && rb_coordinator_leads(methods->daemon->coordinator))
        commit->again(request, methods);
    else if (methods && err == RB_ESTALE)
        rb_request_failf(request, RB_EAGAIN, "the coordinator has just changed: try again");
    else if (methods && err) /* rubatod stops: it is not the caller who has canceled it */
        rb_request_fail(request, err == RB_ECANCELED ? RB_EUNREACHABLE : err, why);
    else if (methods)
        rb_request_reply(request, json_incref(commit->body));
    commit_free(commit);
}

void rb_methods_commit(struct rb_methods *methods, struct rb_request *request,
                       struct rb_writes *writes, const char *makes, json_t *body,
                       void (*again)(struct rb_request *request, void *context))
{
    struct commit *commit = rb_alloc(sizeof(*commit));

    commit->body = body;
    commit->op.makes = commit->makes = makes ? rb_string(makes) : NULL;
    commit->again = again;
    rb_op_add(&commit->op, methods, request);
    rb_store_commit(methods->daemon->store, writes,
                    rb_coordinator_fence(methods->daemon->coordinator), committed, commit);
    rb_writes_done(writes);
}
