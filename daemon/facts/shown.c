/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/shown.h"

#include <string.h>

bool rb_job_shown(const struct rb_job_facts *job)
{
    return job->job.message && job->wish.message && job->state.message &&
           !job->wish.wish->deleted && job->job.job->spec;
}

const Rb__Configuration *rb_job_active(const struct rb_job_facts *job)
{
    const struct rb_fact *fact = rb_facts_configuration(job, job->state.state->active);

    return fact ? fact->configuration : NULL;
}

const Rb__Configuration *rb_job_last(const struct rb_job_facts *job)
{
    for (size_t i = job->configurations.n; i-- > 0;)
        if (rb_configuration_took_over(job->configurations.at[i].configuration))
            return job->configurations.at[i].configuration;
    return NULL;
}

int64_t rb_job_step(const struct rb_job_facts *job)
{
    const Rb__JobState *state = job->state.state;

    if (state->phase == RB__PHASE__Succeeded)
        return job->job.job->steps;
    if (job->progress.message &&
        (state->active || !state->parked || job->progress.progress->step > state->parked->step))
        return job->progress.progress->step;
    return state->parked ? state->parked->step : job->job.job->resume_step;
}

/* A job that does not train has no pace, whatever it had before. */
double rb_job_pace(const struct rb_job_facts *job)
{
    const Rb__Configuration *active = rb_job_active(job);
    const Rb__Progress *progress = job->progress.progress;

    if (!job->progress.message || !active || job->state.state->phase != RB__PHASE__Running ||
        job->state.state->saver)
        return 0;
    /* It was started anew and has not told of a step. */
    if (progress->configuration < active->number && progress->time < active->created)
        return 0;
    return progress->throughput;
}

const Rb__Event *rb_job_checkpoint_failed(const struct rb_facts *facts,
                                          const struct rb_job_facts *job)
{
    const size_t n = job->checkpoints.n;
    const uint64_t kept = n ? job->checkpoints.at[n - 1].checkpoint->time : 0;
    const Rb__Event *failed = NULL;

    for (size_t i = 0; i < facts->events.n; i++) {
        const Rb__Event *event = facts->events.at[i].event;

        if (event->job_id && !strcmp(event->job_id, job->id) &&
            !strcmp(event->kind, "checkpoint-failed") && event->time > kept)
            failed = event;
    }
    return failed;
}

const char *rb_phase_text(Rb__Phase phase)
{
    const ProtobufCEnumValue *value =
        protobuf_c_enum_descriptor_get_value(&rb__phase__descriptor, (int)phase);

    return value ? value->name : "?";
}
