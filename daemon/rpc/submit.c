/* SPDX-License-Identifier: Apache-2.0 */
/* The method `submit`: a job file becomes a job.
 *
 *     checked on the loop -> compiled, and timed, on a thread -> blobs -> job, wish, state in one
 * transaction
 *
 * What compiling says about the model or the data is the answer. */
#include "daemon/rpc/methods_inside.h"

#include "base/clock.h"
#include "base/log.h"
#include "daemon/agent/devices.h"
#include "daemon/agent/spawn.h"
#include "daemon/rpc/resume.h"
#include "plan/compile/compile.h"
#include "plan/compile/footprint.h"
#include "plan/schedule_pipeline.h"
#include "plan/split.h"
#include "proto/reflect.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

struct submit {
    struct rb_op op; /* request NULL: let go, the thread ends by itself */
    uv_work_t work;
    char *name, *numeric_class;
    char *folder;     /* of blobs */
    char *worker;     /* the program that times models; NULL: nothing here is of the job's class */
    char *kind;       /* of the device here that times */
    uint32_t ordinal; /* and which of its kind it is */
    uint64_t memory;  /* of a device of the class, the smallest; 0: unknown */
    Rb__Spec *spec;

    int err; /* written by the thread */
    struct rb_why why;
    struct rb_compiled compiled;
    bool has_compiled;
    uint32_t replicas;
    struct rb_buffer model, profile; /* messages; no profile: empty */
    char *resume;
    int64_t resume_step;
    char written[3][33]; /* model, weights, profile: blobs */

    char blobs[3][33]; /* the same, held until the job is in facts: empty before */
    json_t *reply;
};

static void submit_free(struct submit *submit)
{
    for (size_t i = 0; submit->op.methods && i < RB_COUNT(submit->blobs); i++)
        rb_blobs_release(submit->op.methods->daemon->blobs, submit->blobs[i]);
    rb_op_remove(&submit->op);
    if (submit->has_compiled)
        rb_compiled_done(&submit->compiled);
    if (submit->spec)
        rb__spec__free_unpacked(submit->spec, NULL);
    rb_buffer_done(&submit->model);
    rb_buffer_done(&submit->profile);
    json_decref(submit->reply);
    free(submit->resume);
    free(submit->name);
    free(submit->numeric_class);
    free(submit->folder);
    free(submit->worker);
    free(submit->kind);
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
    submit_free(submit);
    rb_request_fail(request, err, &told);
}

/* ---- On the thread ----------------------------------------------------------------------------*/

/* With the state in shards the planner may choose how the job runs, if it knows what a microbatch
 * takes.  Without that the job is data parallel. */
static void take_profile(struct submit *submit)
{
    const Rb__Spec *spec = submit->spec;
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/%s", submit->folder, submit->written[0]);
    RB_CLEANUP(rb_freep) char *ordinal = rb_format("%" PRIu32, submit->ordinal);
    const char *arguments[] = {submit->worker, "--profile", model,   "--kind",
                               submit->kind,   "--device",  ordinal, NULL};
    struct rb_why why = {0};
    int err;

    if (!submit->worker || rb_pipeline_pinned(spec) || !submit->replicas ||
        spec->devices->max <= submit->replicas)
        return;
    err = rb_program_output(submit->worker, arguments, &submit->profile, &why);
    if (!err)
        err = rb_blobs_write(submit->folder, submit->profile.data, submit->profile.size,
                             submit->written[2], &why);
    if (!err)
        return;
    submit->profile.size = 0;
    rb_log(RB_LOG_WARN, "job %s is not profiled, and stays data parallel: %s", submit->name,
           why.text);
}

static void compile(uv_work_t *work)
{
    struct submit *submit = work->data;
    const Rb__CheckpointSpec *checkpoint = submit->spec->checkpoint;

    submit->err = rb_compile(submit->spec, submit->numeric_class, &submit->compiled, &submit->why);
    if (submit->err == RB_ENOTFOUND) /* a file that the job names: the job is wrong, not its name */
        submit->err = RB_EINVAL;
    if (submit->err)
        return;
    submit->has_compiled = true;
    submit->err = rb_pipeline_check(submit->spec, submit->compiled.model, &submit->why);
    if (!submit->err)
        submit->err =
            rb_split_make(submit->spec, submit->numeric_class, &submit->compiled, &submit->why);
    if (submit->err)
        return;
    submit->err = rb_footprint_replicas(submit->spec, submit->compiled.model, submit->memory,
                                        &submit->replicas, &submit->why);
    if (submit->err)
        return;
    submit->model.size = rb__model__get_packed_size(submit->compiled.model);
    submit->model.room = submit->model.size + 1;
    submit->model.data = rb_alloc(submit->model.room);
    rb__model__pack(submit->compiled.model, (uint8_t *)submit->model.data);
    submit->err = rb_blobs_write(submit->folder, submit->model.data, submit->model.size,
                                 submit->written[0], &submit->why);
    if (!submit->err)
        submit->err =
            rb_blobs_write(submit->folder, submit->compiled.weights.data,
                           submit->compiled.weights.size, submit->written[1], &submit->why);
    if (!submit->err)
        take_profile(submit);
    if (!submit->err && checkpoint && checkpoint->path)
        submit->err = rb_resume_find(checkpoint->path, submit->compiled.model->spec_digest,
                                     submit->numeric_class, &submit->resume, &submit->resume_step,
                                     &submit->why);
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
    event.job = submit->name;
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

    wish.want = submit->spec->devices ? submit->spec->devices->want : 1;
    wish.has_asked = 1;
    wish.asked = job->created;
    state.phase = RB__PHASE__Pending;
    rb_writes_put(&writes, RB_ABSENT, &job->base, "jobs/%s/job", job->id);
    rb_writes_put(&writes, RB_ABSENT, &wish.base, "jobs/%s/wish", job->id);
    rb_writes_put(&writes, RB_ABSENT, &state.base, "jobs/%s/state", job->id);
    write_event(submit, job, &writes);
    submit->reply =
        json_pack("{s:s,s:s,s:I,s:I,s:s,s:I}", "name", job->name, "id", job->id, "steps",
                  (json_int_t)job->steps, "microbatches", (json_int_t)job->microbatches, "summary",
                  job->summary, "resumeStep", (json_int_t)job->resume_step);
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

    memcpy(submit->blobs[i], submit->written[i], sizeof(submit->blobs[i]));
    rb_blobs_hold(blobs, submit->blobs[i]);
    if (!rb_blobs_has(blobs, submit->blobs[i]))
        err = rb_blobs_put(blobs, bytes, size, submit->blobs[i], &submit->why);
    return err;
}

static void compiled(uv_work_t *work, int status)
{
    struct submit *submit = work->data;
    struct rb_methods *methods = submit->op.methods;
    char id[13];
    Rb__Job job = RB__JOB__INIT;
    int err = status ? RB_ECANCELED : submit->err;

    if (!methods) {
        submit_free(submit);
        return;
    }
    if (!err)
        err = keep_blob(submit, 0, submit->model.data, submit->model.size);
    if (!err)
        err = keep_blob(submit, 1, submit->compiled.weights.data, submit->compiled.weights.size);
    if (!err && submit->profile.size)
        err = keep_blob(submit, 2, submit->profile.data, submit->profile.size);
    if (!err)
        err = new_id(id);
    if (err) {
        fail(submit, err, &submit->why);
        return;
    }
    job.name = submit->name;
    job.id = id;
    job.created = rb_clock_unix_ms();
    job.spec = submit->spec;
    job.model = submit->blobs[0];
    job.weights = submit->blobs[1];
    job.profile = submit->profile.size ? submit->blobs[2] : NULL;
    job.node = methods->daemon->settings->node;
    job.steps = submit->compiled.model->steps;
    job.microbatches = submit->compiled.microbatches;
    job.has_blocks = job.has_replicas = 1;
    job.blocks = submit->compiled.model->n_blocks;
    job.replicas = submit->replicas;
    job.summary = submit->compiled.summary;
    job.resume = submit->resume;
    job.has_resume_step = submit->resume != NULL;
    job.resume_step = submit->resume ? submit->resume_step : 0;
    job.numeric_class = submit->numeric_class;
    put_job(submit, &job);
}

/* ---- Checking ---------------------------------------------------------------------------------*/

/* How much a device is wanted for a job of any kind: GPUs before cores, then those of this node. */
static int rank_of(struct rb_daemon *daemon, const Rb__Node *node, const Rb__Device *device)
{
    return (strcmp(device->kind, "cpu") ? 2 : 0) + !strcmp(node->name, daemon->settings->node);
}

/* Why a job of a kind that no node has cannot be taken. */
static int refuse_kind(const struct rb_facts *facts, const char *kind, struct rb_why *why)
{
    const char *missing = NULL;

    for (size_t i = 0; i < facts->nodes.n && !missing; i++)
        missing = facts->nodes.at[i].node->missing;
    return rb_why_set(why, RB_EREFUSED,
                      "spec.devices.kind is %.40s, and no node has such a device%s%s", kind,
                      missing && !strcmp(kind, "cuda") ? ": " : "",
                      missing && !strcmp(kind, "cuda") ? missing : "");
}

/* A job runs in one class for good: that of the best devices that it may have. */
static int find_class(struct rb_daemon *daemon, const struct rb_facts *facts, const char *kind,
                      const char **ret_class, struct rb_why *why)
{
    bool any = !kind || !strcmp(kind, "any");
    const char *class = NULL;
    int best = -1;

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++) {
            int rank = rank_of(daemon, node, node->devices[d]);

            if ((any || !strcmp(kind, node->devices[d]->kind)) && rank > best) {
                best = rank;
                class = rb_facts_class(node, node->devices[d]);
            }
        }
    }
    if (!class && !any && strcmp(kind, "cpu"))
        return refuse_kind(facts, kind, why);
    *ret_class = class ? class : daemon->numeric_class;
    return 0;
}

/* A device of this node that the job can be timed on, the one whose memory is least in use; NULL:
 * there is none. */
static const Rb__Device *find_device(const Rb__Node *here, const char *class)
{
    const Rb__Device *best = NULL;

    for (size_t d = 0; here && d < here->n_devices; d++) {
        const Rb__Device *device = here->devices[d];

        if (!strcmp(rb_facts_class(here, device), class) && !device->sick &&
            (!best || device->used < best->used))
            best = device;
    }
    return best;
}

/* What a device of the class has: of cores an even part of this machine's memory.  0: unknown. */
static uint64_t memory_of(const struct rb_facts *facts, const Rb__Node *here, const char *class)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t least = 0;

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++) {
            const Rb__Device *device = node->devices[d];

            if (device->has_bytes && !strcmp(rb_facts_class(node, device), class) &&
                (!least || device->bytes < least))
                least = device->bytes;
        }
    }
    if (least)
        return least;
    return pages > 0 && page > 0 && here && here->n_devices
               ? (uint64_t)pages * (uint64_t)page / here->n_devices
               : 0;
}

/* Where it will be timed, and what it may take. */
static void look_around(struct rb_methods *methods, const struct rb_facts *facts,
                        struct submit *submit)
{
    const struct rb_fact *fact = rb_fact_find(&facts->nodes, methods->daemon->settings->node);
    const Rb__Node *here = fact ? fact->node : NULL;
    const Rb__Device *device = find_device(here, submit->numeric_class);

    submit->memory = memory_of(facts, here, submit->numeric_class);
    if (device || !strcmp(submit->numeric_class, methods->daemon->numeric_class))
        submit->worker = rb_program_beside("rubato-worker");
    submit->kind = rb_string(device ? device->kind : "cpu");
    submit->ordinal = device && device->has_ordinal ? device->ordinal : 0;
}

static bool name_taken(struct rb_methods *methods, const char *name)
{
    for (const struct rb_op *op = methods->ops; op; op = op->next)
        if (op->let_go == let_go && !strcmp(((const struct submit *)op)->name, name))
            return true;
    return rb_methods_job_named(rb_methods_facts(methods), name) != NULL;
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
    if (name_taken(methods, name)) {
        rb__spec__free_unpacked(spec, NULL);
        rb_request_failf(request, RB_EEXISTS,
                         "there is a job %s already: delete it, or take another name", name);
        return;
    }
    err = find_class(methods->daemon, facts, spec->devices ? spec->devices->kind : NULL, &class,
                     &why);
    if (err) {
        rb__spec__free_unpacked(spec, NULL);
        rb_request_fail(request, err, &why);
        return;
    }
    submit = rb_alloc(sizeof(*submit));
    submit->op.let_go = let_go;
    submit->work.data = submit;
    submit->name = rb_string(name);
    submit->spec = spec;
    submit->numeric_class = rb_string(class);
    submit->folder = rb_string(rb_blobs_folder(methods->daemon->blobs));
    look_around(methods, facts, submit);
    rb_op_add(&submit->op, methods, request);
    err = uv_queue_work(methods->daemon->loop, &submit->work, compile, compiled);
    if (err) {
        rb_why_set(&why, RB_EINTERNAL, "cannot start to compile: %s", uv_strerror(err));
        fail(submit, RB_EINTERNAL, &why);
    }
}

const struct rb_server_method rb_methods_submit[] = {
    {"submit", true, submit_job},
    {NULL, false, NULL},
};
