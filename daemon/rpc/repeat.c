/* SPDX-License-Identifier: Apache-2.0 */
/* The method `repeat`: a job like another one, from where that began, on so many devices.
 *
 * It has the other's Model and weights, which are blobs that never change, so nothing is compiled
 * and the model's file may be gone.  A comparison of the two (ctl/verify.c) shows whether devices
 * have made a difference. */
#include "daemon/rpc/submit_inside.h"

#include "base/clock.h"
#include "daemon/rpc/methods_inside.h"
#include "proto/spec.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What promises the same bits on any devices (docs/job-file.md). */
static int check_exact(const Rb__Job *job, struct rb_why *why)
{
    const Rb__ParallelSpec *parallel = job->spec->parallel;

    if (rb_spec_asynchronous(job->spec))
        return rb_why_set(
            why, RB_EREFUSED,
            "%s trains in an asynchronous pipeline (spec.parallel.schedule: %s), whose "
            "bits are those of its stages: other devices give others",
            job->name, parallel->schedule);
    if (parallel->hypergraph > 1)
        return rb_why_set(why, RB_EREFUSED,
                          "%s trains in %u parts of its filters (spec.parallel.hypergraph), which "
                          "agree with the whole within rounding and not to the bit",
                          job->name, parallel->hypergraph);
    return 0;
}

/* Count also devices that others use or that are cordoned: they may come free. */
static int64_t devices_of_class(const struct rb_facts *facts, const char *class)
{
    int64_t n = 0;

    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;

        for (size_t d = 0; d < node->n_devices; d++)
            n += !strcmp(rb_facts_class(node, node->devices[d]), class);
    }
    return n;
}

static int check_devices(const struct rb_facts *facts, const Rb__Job *job, int64_t devices,
                         struct rb_why *why)
{
    const int64_t there = devices_of_class(facts, job->numeric_class);

    if (devices < 1)
        return rb_why_set(why, RB_EINVAL, "devices: at least 1");
    if (devices > there)
        return rb_why_set(why, RB_EREFUSED,
                          "%s cannot train on %" PRId64 " devices: of its numeric class, %s, the "
                          "cluster has %" PRId64,
                          job->name, devices, job->numeric_class, there);
    return 0;
}

/* The other job's spec, but for what has to do with devices and files: the new job takes no device
 * from jobs that have them, and saves nothing. */
struct changed {
    Rb__Spec spec;
    Rb__DevicesSpec devices;
    Rb__CheckpointSpec checkpoint;
};

static void change_spec(const Rb__Spec *from, uint32_t devices, struct changed *ret)
{
    ret->spec = *from;
    ret->devices = *from->devices;
    ret->devices.min = ret->devices.max = ret->devices.want = devices;
    ret->devices.has_min = ret->devices.has_max = ret->devices.has_want = 1;
    ret->spec.devices = &ret->devices;
    ret->checkpoint = *from->checkpoint;
    ret->checkpoint.path = NULL;
    ret->checkpoint.has_every = 0;
    ret->checkpoint.every = 0;
    ret->spec.checkpoint = &ret->checkpoint;
    ret->spec.has_priority = 1;
    ret->spec.priority = INT32_MIN;
}

static void repeat(struct rb_request *request, void *context);

static void commit_repeated(struct rb_request *request, struct rb_methods *methods,
                            const struct rb_job_facts *of, const char *name, uint32_t devices)
{
    struct rb_writes writes = {0};
    struct rb_why why = {{0}};
    struct changed changed;
    Rb__Job job = *of->job.job;
    char id[13], text[200];
    int err;

    change_spec(job.spec, devices, &changed);
    err = rb_spec_check(name, &changed.spec, &why);
    if (!err)
        err = rb_submission_id(id, &why);
    if (err) {
        rb_request_fail(request, err, &why);
        return;
    }
    snprintf(text, sizeof(text), "trains what %s has trained, on %u device%s", job.name, devices,
             devices == 1 ? "" : "s");
    job.name = (char *)name;
    job.id = id;
    job.created = rb_clock_unix_ms();
    job.spec = &changed.spec;
    /* Where the other job is deleted meanwhile its blobs may be gone. */
    rb_writes_guard(&writes, of->job.revision, "jobs/%s/job", of->id);
    rb_submission_put(&job, text, &writes);
    rb_methods_commit(
        methods, request, &writes, name,
        json_pack("{s:s,s:s,s:I}", "name", name, "id", id, "steps", (json_int_t)job.steps), repeat);
}

static void repeat(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_job_facts *of = rb_methods_job(methods, request);
    struct rb_why why = {{0}};
    const char *name;
    int64_t devices;
    int err;

    if (!of || !rb_methods_number(request, "devices", 0, &devices))
        return;
    err = rb_request_string(request, "name", &name, &why);
    if (!err)
        err = check_exact(of->job.job, &why);
    if (!err)
        err = check_devices(rb_methods_facts(methods), of->job.job, devices, &why);
    if (!err)
        err = rb_submission_name_free(methods, name, &why);
    if (err)
        rb_request_fail(request, err, &why);
    else
        commit_repeated(request, methods, of, name, (uint32_t)devices);
}

const struct rb_server_method rb_methods_repeat[] = {
    {"repeat", true, repeat},
    {NULL, false, NULL},
};
