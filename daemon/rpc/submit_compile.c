/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/submit_inside.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/agent/spawn.h"
#include "daemon/facts/fit.h"
#include "daemon/rpc/blobs.h"
#include "daemon/rpc/resume.h"
#include "plan/compile/footprint.h"
#include "plan/schedule_pipeline.h"
#include "plan/split.h"
#include "proto/spec_paths.h"

#include <inttypes.h>
#include <string.h>

static int compile_model(struct rb_submission *job, struct rb_why *why)
{
    int err = rb_compile(job->spec, job->numeric_class, &job->compiled, why);

    if (err == RB_ENOTFOUND) /* a file that the job names: the job is wrong, not its name */
        err = RB_EINVAL;
    if (err)
        return err;
    job->has_compiled = true;
    err = rb_pipeline_check(job->spec, job->compiled.model, why);
    if (!err)
        err = rb_split_make(job->spec, job->numeric_class, &job->compiled, why);
    if (!err)
        err =
            rb_footprint_replicas(job->spec, job->compiled.model, job->memory, &job->replicas, why);
    if (!err && rb_footprint_has_both(job->compiled.model))
        job->footprint = rb_fit_describe(job->compiled.model, rb_footprint_limit(job->spec),
                                         job->spec->devices->max);
    return err;
}

static int write_model(struct rb_submission *job, struct rb_why *why)
{
    const struct rb_buffer *weights = &job->compiled.weights;
    int err;

    job->model.size = rb__model__get_packed_size(job->compiled.model);
    job->model.room = job->model.size + 1;
    job->model.data = rb_alloc(job->model.room);
    rb__model__pack(job->compiled.model, (uint8_t *)job->model.data);
    err = rb_blobs_write(job->folder, job->model.data, job->model.size, job->written[0],
                         &job->is_new[0], why);
    if (!err)
        err = rb_blobs_write(job->folder, weights->data, weights->size, job->written[1],
                             &job->is_new[1], why);
    return err;
}

int rb_submission_compile(struct rb_submission *job, struct rb_why *why)
{
    const char *checkpoints = rb_spec_checkpoints(job->spec);
    int err = rb_submission_alone(job, why);

    if (!err)
        err = compile_model(job, why);
    if (!err && checkpoints)
        err = rb_resume_find(checkpoints, job->compiled.model,
                             strcmp(job->spec->checkpoint->numeric_class, "any") == 0, &job->resume,
                             &job->resume_step, &job->compiled.notes, why);
    return err ? err : write_model(job, why);
}

void rb_submission_time(struct rb_submission *job)
{
    const Rb__Spec *spec = job->spec;
    RB_CLEANUP(rb_freep) char *model = rb_format("%s/%s", job->folder, job->written[0]);
    RB_CLEANUP(rb_freep) char *ordinal = rb_format("%" PRIu32, job->ordinal);
    const char *arguments[] = {job->worker, "--profile", model,   "--kind",
                               job->kind,   "--device",  ordinal, NULL};
    struct rb_why why = {0};
    int err;

    if (!job->worker || rb_pipeline_pinned(spec) || spec->devices->max < 2)
        return;
    err = rb_program_output(job->worker, arguments, &job->profile, &why);
    if (!err)
        err = rb_blobs_write(job->folder, job->profile.data, job->profile.size, job->written[2],
                             &job->is_new[2], &why);
    if (!err)
        return;
    job->profile.size = 0;
    rb_log(RB_LOG_WARN, "job %s is not profiled, and stays data parallel: %s", job->name, why.text);
}
