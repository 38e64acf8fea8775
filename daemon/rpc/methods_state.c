/* SPDX-License-Identifier: Apache-2.0 */
/* Methods that hand out a job's state: checkpoint, export. */
#include "daemon/rpc/handout.h"

#include "daemon/facts/members.h"
#include "daemon/facts/restore.h"
#include "proto/spec_paths.h"

#include <inttypes.h>
#include <string.h>

/* The state that the job goes on from is a checkpoint already, or parked; then its node makes a
 * copy. */
static void checkpoint_kept(struct rb_methods *methods, struct rb_request *request,
                            const struct rb_job_facts *job)
{
    struct rb_arena arena = {0};
    bool local, over = rb_phase_final(job->state.state->phase);
    const Rb__Checkpoint *kept = over ? NULL : rb_restore_source(job, &arena, &local);
    const Rb__Checkpoint *parked = job->state.state->parked;
    const char *name = job->job.job->name;

    if (!kept || kept->step < 1) {
        rb_request_failf(request, RB_EREFUSED, "job %s is not training now (%s)", name,
                         rb_phase_text(job->state.state->phase));
    } else if (!parked || strcmp(parked->path, kept->path) != 0) {
        rb_request_reply(request, rb_handout_place(kept->step, kept->path, kept->node));
    } else if (!rb_spec_checkpoints(job->job.job->spec)) {
        rb_request_failf(request, RB_EREFUSED,
                         "job %s has no spec.checkpoint.path: its state at step %" PRId64
                         " is kept at %s on %s until the job is deleted; export has its weights",
                         name, kept->step, kept->path, kept->node);
    } else {
        rb_handout_save_parked(rb_handout_new(methods, request, job, false), kept);
    }
    rb_arena_done(&arena);
}

static void checkpoint(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_job_facts *job = rb_methods_job(methods, request);
    const Rb__Configuration *active = job ? rb_job_active(job) : NULL;

    if (job && !active)
        checkpoint_kept(methods, request, job);
    else if (job)
        rb_handout_save(rb_handout_new(methods, request, job, false), job, active);
}

static void export(struct rb_request *request, void *context)
{
    struct rb_methods *methods = context;
    const struct rb_job_facts *job = rb_methods_job(methods, request);

    if (job)
        rb_handout_take_turn(rb_handout_new(methods, request, job, true));
}

const struct rb_server_method rb_methods_state[] = {
    {"checkpoint", true, checkpoint},
    {"export", true, export, .reads = true}, /* what a worker writes for it is for it alone */
    {NULL, false, NULL},
};
