/* SPDX-License-Identifier: Apache-2.0 */
/* The method `submit`: a job file becomes a job.
 *
 *     checked > compiled, on a thread > its blobs held > timed, on a thread > job, wish, state in
 *     one transaction
 *
 * What compiling says about the model or the data is the answer. */
#include "daemon/rpc/methods_inside.h"

#include "daemon/rpc/submit_inside.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <stdlib.h>
#include <string.h>

struct submit {
    struct rb_op op; /* request NULL: let go, the thread ends by itself */
    uv_work_t work;
    struct rb_submission job; /* the thread's while it runs */
    int err;                  /* what it said */
    struct rb_why why;

    size_t held; /* so many of its blobs, until the job is in facts */
    bool maybe;  /* there may be a job: etcd has not said */
    json_t *reply;
};

static void job_done(struct rb_submission *job)
{
    if (job->has_compiled)
        rb_compiled_done(&job->compiled);
    if (job->spec)
        rb__spec__free_unpacked(job->spec, NULL);
    if (job->footprint)
        rb__footprint__free_unpacked(job->footprint, NULL);
    rb_submission_claims_done(job);
    rb_buffer_done(&job->model);
    rb_buffer_done(&job->profile);
    free(job->resume);
    free(job->name);
    free(job->numeric_class);
    free(job->folder);
    free(job->worker);
    free(job->kind);
}

static void release_blobs(struct submit *submit)
{
    for (; submit->op.methods && submit->held; submit->held--)
        rb_blobs_release(submit->op.methods->daemon->blobs, submit->job.written[submit->held - 1]);
}

static void submit_free(struct submit *submit)
{
    release_blobs(submit);
    rb_op_remove(&submit->op);
    job_done(&submit->job);
    json_decref(submit->reply);
    free(submit);
}

/* The thread or the store calls back once more, and that frees. */
static void let_go(struct rb_op *op)
{
    op->let_go = NULL;
}

/* No job comes of it: the blobs that it alone has written go.  Blobs that were there before may be
 * of jobs that etcd has lost. */
static void remove_blobs(struct submit *submit)
{
    struct rb_methods *methods = submit->op.methods;

    release_blobs(submit);
    for (size_t i = 0; i < RB_COUNT(submit->job.written); i++)
        if (submit->job.is_new[i] &&
            !rb_facts_names_blob(rb_methods_facts(methods), submit->job.written[i]))
            rb_blobs_remove(methods->daemon->blobs, submit->job.written[i]);
}

static void fail(struct submit *submit, int err, const struct rb_why *why)
{
    struct rb_request *request = submit->op.request;
    struct rb_why told = {{0}};

    if (why)
        told = *why;
    if (!submit->maybe)
        remove_blobs(submit);
    if (err == RB_ENOTFOUND) /* what the job names, as any other thing that is wrong with it */
        err = RB_EREFUSED;
    submit_free(submit);
    rb_request_fail(request, err, &told);
}

static int start_work(struct submit *submit, uv_work_cb work, uv_after_work_cb after)
{
    int err = uv_queue_work(submit->op.methods->daemon->loop, &submit->work, work, after);

    return err ? rb_why_set(&submit->why, RB_EINTERNAL, "cannot start a thread's work: %s",
                            uv_strerror(err))
               : 0;
}

/* ---- Writing ----------------------------------------------------------------------------------*/

static void committed(int err, const struct rb_why *why, void *context)
{
    struct submit *submit = context;
    struct rb_request *request = submit->op.request;

    submit->maybe = err == RB_EUNREACHABLE || err == RB_ETIMEOUT || err == RB_ECANCELED;
    if (!submit->op.methods) {
        submit_free(submit);
    } else if (err == RB_ESTALE) {
        rb_why_set(&submit->why, RB_EAGAIN, "the coordinator has just changed: try again");
        fail(submit, RB_EAGAIN, &submit->why);
    } else if (err) { /* canceled: by a rubatod that stops, not by the caller */
        fail(submit, err == RB_ECANCELED ? RB_EUNREACHABLE : err, why);
    } else {
        json_t *reply = RB_TAKE(submit->reply);

        submit_free(submit);
        rb_request_reply(request, reply);
    }
}

/* The thread has written the blob; another job that had the same one may have been deleted since.
 */
static int hold_blob(struct submit *submit, const void *bytes, size_t size)
{
    struct rb_blobs *blobs = submit->op.methods->daemon->blobs;
    char *digest = submit->job.written[submit->held++];

    rb_blobs_hold(blobs, digest);
    return rb_blobs_has(blobs, digest) ? 0 : rb_blobs_put(blobs, bytes, size, digest, &submit->why);
}

static int write_job(struct submit *submit)
{
    struct rb_daemon *daemon = submit->op.methods->daemon;
    struct rb_writes writes = {0};
    int err = rb_submission_write(&submit->job, daemon->settings->node, &writes, &submit->reply,
                                  &submit->why);

    if (!err)
        rb_store_commit(daemon->store, &writes, rb_coordinator_fence(daemon->coordinator),
                        committed, submit);
    rb_writes_done(&writes);
    return err;
}

static void time_model(uv_work_t *work)
{
    struct submit *submit = work->data;

    rb_submission_time(&submit->job);
}

static void timed(uv_work_t *work, int status)
{
    struct submit *submit = work->data;
    const struct rb_buffer *profile = &submit->job.profile;
    int err = status ? RB_ECANCELED : 0;

    if (!submit->op.methods) {
        submit_free(submit);
        return;
    }
    if (!err && profile->size)
        err = hold_blob(submit, profile->data, profile->size);
    if (!err)
        err = write_job(submit);
    if (err)
        fail(submit, err, &submit->why);
}

static void compile(uv_work_t *work)
{
    struct submit *submit = work->data;

    submit->err = rb_submission_compile(&submit->job, &submit->why);
}

static void compiled(uv_work_t *work, int status)
{
    struct submit *submit = work->data;
    struct rb_submission *made = &submit->job;
    int err = status ? RB_ECANCELED : submit->err;

    if (!submit->op.methods) {
        submit_free(submit);
        return;
    }
    if (!err)
        err = hold_blob(submit, made->model.data, made->model.size);
    if (!err)
        err = hold_blob(submit, made->compiled.weights.data, made->compiled.weights.size);
    if (!err)
        err = start_work(submit, time_model, timed);
    if (err)
        fail(submit, err, &submit->why);
}

/* ---- Checking ---------------------------------------------------------------------------------*/

/* A job that is being submitted; NULL: the operation is another one. */
static const struct rb_submission *submission_of(const struct rb_op *op)
{
    return op->let_go == let_go ? &((const struct submit *)op)->job : NULL;
}

int rb_submission_name_free(struct rb_methods *methods, const char *name, struct rb_why *why)
{
    bool taken = rb_methods_job_named(rb_methods_facts(methods), name) != NULL;

    for (const struct rb_op *op = methods->ops; op && !taken; op = op->next)
        taken = op->makes && !strcmp(op->makes, name);
    return taken ? rb_why_set(why, RB_EEXISTS,
                              "there is a job %s already: delete it, or take another name", name)
                 : 0;
}

static void claim_folders(struct rb_submission *job, struct rb_methods *methods)
{
    for (const struct rb_op *op = methods->ops; op; op = op->next) {
        const struct rb_submission *other = submission_of(op);

        if (other)
            rb_submission_claim(job, other->spec, other->name, "being submitted");
    }
    rb_submission_claim_all(job, rb_methods_facts(methods));
}

static int read_spec(struct rb_request *request, const char **ret_name, Rb__Spec **ret_spec,
                     struct rb_why *why)
{
    const json_t *spec = json_object_get(rb_request_body(request), "spec");
    ProtobufCMessage *message;
    int err = rb_request_string(request, "name", ret_name, why);

    if (!err && !json_is_object(spec))
        err = rb_why_set(why, RB_EINVAL, "spec: a job file's `spec` as an object is missing");
    if (!err)
        err = rb_reflect_from_json(spec, &rb__spec__descriptor, &message, why);
    if (err)
        return err;
    err = rb_spec_check(*ret_name, (Rb__Spec *)message, why);
    if (err)
        rb__spec__free_unpacked((Rb__Spec *)message, NULL);
    else
        *ret_spec = (Rb__Spec *)message;
    return err;
}

static void submit_job(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    struct rb_daemon *daemon = methods->daemon;
    const struct rb_facts *facts = rb_methods_facts(methods);
    struct rb_why why = {{0}};
    struct submit *submit;
    const char *name, *class = NULL;
    Rb__Spec *spec;
    int err = read_spec(request, &name, &spec, &why);

    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    err = rb_submission_name_free(methods, name, &why);
    if (!err)
        err = rb_submission_class(facts, daemon->settings->node, daemon->numeric_class,
                                  spec->devices ? spec->devices->kind : NULL, &class, &why);
    if (err) {
        rb__spec__free_unpacked(spec, NULL);
        rb_request_fail(request, err, &why);
        return;
    }
    submit = rb_alloc(sizeof(*submit));
    submit->op.let_go = let_go;
    submit->work.data = submit;
    submit->op.makes = submit->job.name = rb_string(name);
    submit->job.spec = spec;
    submit->job.numeric_class = rb_string(class);
    submit->job.folder = rb_string(rb_blobs_folder(daemon->blobs));
    rb_submission_place(&submit->job, facts, daemon->settings->node, daemon->numeric_class);
    claim_folders(&submit->job, methods);
    rb_op_add(&submit->op, methods, request);
    err = start_work(submit, compile, compiled);
    if (err)
        fail(submit, err, &submit->why);
}

const struct rb_server_method rb_methods_submit[] = {
    {"submit", true, submit_job},
    {NULL, false, NULL},
};
