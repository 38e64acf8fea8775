/* SPDX-License-Identifier: Apache-2.0 */
/* The method `submit`: a job file becomes a job.
 *
 *     checked on the loop -> compiled, and timed, on a thread -> blobs -> job, wish, state in one
 * transaction
 *
 * What compiling says about the model or the data is the answer. */
#include "daemon/rpc/methods_inside.h"

#include "base/clock.h"
#include "daemon/rpc/submit_inside.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct submit {
    struct rb_op op; /* request NULL: let go, the thread ends by itself */
    uv_work_t work;
    struct rb_submission job; /* the thread's while it runs */
    int err;                  /* what it said */
    struct rb_why why;

    char blobs[3][33]; /* those written, held until the job is in facts: empty before */
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

static void submit_free(struct submit *submit)
{
    for (size_t i = 0; submit->op.methods && i < RB_COUNT(submit->blobs); i++)
        rb_blobs_release(submit->op.methods->daemon->blobs, submit->blobs[i]);
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

static void fail(struct submit *submit, int err, const struct rb_why *why)
{
    struct rb_request *request = submit->op.request;
    struct rb_why told = {{0}};

    if (why)
        told = *why;
    if (err == RB_ENOTFOUND) /* what the job names, as any other thing that is wrong with it */
        err = RB_EREFUSED;
    submit_free(submit);
    rb_request_fail(request, err, &told);
}

/* ---- Writing ----------------------------------------------------------------------------------*/

static void committed(int err, const struct rb_why *why, void *context)
{
    struct submit *submit = context;
    struct rb_request *request = submit->op.request;

    if (!submit->op.methods) {
        submit_free(submit);
    } else if (err == RB_ESTALE) {
        rb_why_set(&submit->why, RB_EAGAIN, "the coordinator has just changed: try again");
        fail(submit, RB_EAGAIN, &submit->why);
    } else if (err) {
        fail(submit, err, why);
    } else {
        json_t *reply = RB_TAKE(submit->reply);

        submit_free(submit);
        rb_request_reply(request, reply);
    }
}

static void write_event(struct submit *submit, const Rb__Job *job, struct rb_writes *writes)
{
    Rb__Event event = RB__EVENT__INIT;
    char text[600];

    if (job->resume)
        snprintf(text, sizeof(text), "%s; goes on from step %" PRId64, job->summary,
                 job->resume_step);
    else
        snprintf(text, sizeof(text), "%s", job->summary);
    event.time = job->created;
    event.job = submit->job.name;
    event.job_id = job->id;
    event.kind = (char *)"submitted";
    event.text = text;
    rb_writes_put(writes, RB_ANY_REVISION, &event.base, "events/%013" PRIu64 "-000%.8s",
                  job->created, job->id);
}

static void put_job(struct submit *submit, const Rb__Job *job)
{
    struct rb_daemon *daemon = submit->op.methods->daemon;
    struct rb_writes writes = {0};
    Rb__Wish wish = RB__WISH__INIT;
    Rb__JobState state = RB__JOB_STATE__INIT;
    json_t *notes = json_array();

    wish.want = submit->job.spec->devices ? submit->job.spec->devices->want : 1;
    wish.has_asked = 1;
    wish.asked = job->created;
    state.phase = RB__PHASE__Pending;
    rb_writes_put(&writes, RB_ABSENT, &job->base, "jobs/%s/job", job->id);
    rb_writes_put(&writes, RB_ABSENT, &wish.base, "jobs/%s/wish", job->id);
    rb_writes_put(&writes, RB_ABSENT, &state.base, "jobs/%s/state", job->id);
    write_event(submit, job, &writes);
    rb_reflect_lines(submit->job.compiled.notes.data, notes);
    submit->reply =
        json_pack("{s:s,s:s,s:I,s:I,s:s,s:I,s:o}", "name", job->name, "id", job->id, "steps",
                  (json_int_t)job->steps, "microbatches", (json_int_t)job->microbatches, "summary",
                  job->summary, "resumeStep", (json_int_t)job->resume_step, "notes", notes);
    rb_store_commit(daemon->store, &writes, "leader", rb_coordinator_fence(daemon->coordinator),
                    committed, submit);
    rb_writes_done(&writes);
}

static int new_id(char ret_id[13])
{
    unsigned char bytes[6];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return RB_EIO;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret_id + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* The thread has written it; another job that had the same one may have been deleted since. */
static int keep_blob(struct submit *submit, size_t i, const void *bytes, size_t size)
{
    struct rb_blobs *blobs = submit->op.methods->daemon->blobs;
    int err = 0;

    memcpy(submit->blobs[i], submit->job.written[i], sizeof(submit->blobs[i]));
    rb_blobs_hold(blobs, submit->blobs[i]);
    if (!rb_blobs_has(blobs, submit->blobs[i]))
        err = rb_blobs_put(blobs, bytes, size, submit->blobs[i], &submit->why);
    return err;
}

static void compile(uv_work_t *work)
{
    struct submit *submit = work->data;

    submit->err = rb_submission_compile(&submit->job, &submit->why);
}

static void compiled(uv_work_t *work, int status)
{
    struct submit *submit = work->data;
    struct rb_methods *methods = submit->op.methods;
    struct rb_submission *made = &submit->job;
    char id[13];
    Rb__Job job = RB__JOB__INIT;
    int err = status ? RB_ECANCELED : submit->err;

    if (!methods) {
        submit_free(submit);
        return;
    }
    if (!err)
        err = keep_blob(submit, 0, made->model.data, made->model.size);
    if (!err)
        err = keep_blob(submit, 1, made->compiled.weights.data, made->compiled.weights.size);
    if (!err && made->profile.size)
        err = keep_blob(submit, 2, made->profile.data, made->profile.size);
    if (!err)
        err = new_id(id);
    if (err) {
        fail(submit, err, &submit->why);
        return;
    }
    job.name = made->name;
    job.id = id;
    job.created = rb_clock_unix_ms();
    job.spec = made->spec;
    job.model = submit->blobs[0];
    job.weights = submit->blobs[1];
    job.profile = made->profile.size ? submit->blobs[2] : NULL;
    job.node = methods->daemon->settings->node;
    job.steps = made->compiled.model->steps;
    job.microbatches = made->compiled.microbatches;
    job.has_blocks = job.has_replicas = 1;
    job.blocks = made->compiled.model->n_blocks;
    job.replicas = made->replicas;
    job.footprint = made->footprint;
    job.summary = made->compiled.summary;
    job.resume = made->resume;
    job.has_resume_step = made->resume != NULL;
    job.resume_step = made->resume ? made->resume_step : 0;
    job.numeric_class = made->numeric_class;
    put_job(submit, &job);
}

/* ---- Checking ---------------------------------------------------------------------------------*/

/* A job that is being submitted; NULL: the operation is another one. */
static const struct rb_submission *submission_of(const struct rb_op *op)
{
    return op->let_go == let_go ? &((const struct submit *)op)->job : NULL;
}

/* A name is its own, also among those that are being submitted. */
static int check_name(struct rb_methods *methods, const char *name, struct rb_why *why)
{
    bool taken = rb_methods_job_named(rb_methods_facts(methods), name) != NULL;

    for (const struct rb_op *op = methods->ops; op && !taken; op = op->next) {
        const struct rb_submission *other = submission_of(op);

        taken = other && !strcmp(other->name, name);
    }
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
    err = check_name(methods, name, &why);
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
    submit->job.name = rb_string(name);
    submit->job.spec = spec;
    submit->job.numeric_class = rb_string(class);
    submit->job.folder = rb_string(rb_blobs_folder(daemon->blobs));
    rb_submission_place(&submit->job, facts, daemon->settings->node, daemon->numeric_class);
    claim_folders(&submit->job, methods);
    rb_op_add(&submit->op, methods, request);
    err = uv_queue_work(daemon->loop, &submit->work, compile, compiled);
    if (err) {
        rb_why_set(&why, RB_EINTERNAL, "cannot start to compile: %s", uv_strerror(err));
        fail(submit, RB_EINTERNAL, &why);
    }
}

const struct rb_server_method rb_methods_submit[] = {
    {"submit", true, submit_job},
    {NULL, false, NULL},
};
