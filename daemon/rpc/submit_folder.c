/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint folder belongs to one job at a time: two jobs would prune, and go on from, what the
 * other one has written. */
#include "daemon/rpc/submit_inside.h"

#include "base/arena.h"
#include "base/file.h"
#include "daemon/facts/members.h"
#include "daemon/rpc/methods_inside.h"
#include "proto/spec_paths.h"

#include <stdlib.h>
#include <string.h>

/* Of its name in a sentence that has more to say (bytes). */
enum { FOLDER_MOST = 200 };

void rb_submission_claim(struct rb_submission *job, const Rb__Spec *other, const char *name,
                         const char *phase)
{
    const char *folder = rb_spec_checkpoints(other);
    struct rb_submission_claim *claim;

    if (!folder || !rb_spec_checkpoints(job->spec))
        return;
    job->claims = rb_realloc(job->claims, (job->n_claims + 1) * sizeof *job->claims);
    claim = &job->claims[job->n_claims++];
    claim->folder = rb_string(folder);
    claim->name = rb_string(name);
    claim->phase = phase;
}

/* A job that is told to end makes no checkpoint any more that anybody waits for. */
static bool lives(const struct rb_job_facts *job)
{
    const Rb__Wish *wish = job->wish.message ? job->wish.wish : NULL;

    return job->job.message && job->state.message && !rb_phase_final(job->state.state->phase) &&
           !(wish && (wish->cancelled || wish->deleted));
}

void rb_submission_claim_all(struct rb_submission *job, const struct rb_facts *facts)
{
    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *other = &facts->jobs[i];

        if (lives(other))
            rb_submission_claim(job, other->job.job->spec, other->job.job->name,
                                rb_phase_text(other->state.state->phase));
    }
}

int rb_submission_alone(const struct rb_submission *job, struct rb_why *why)
{
    const char *folder = rb_spec_checkpoints(job->spec);
    RB_CLEANUP(rb_freep) char *real = job->n_claims ? rb_file_real(folder) : NULL;

    for (size_t i = 0; i < job->n_claims; i++) {
        const struct rb_submission_claim *claim = &job->claims[i];
        RB_CLEANUP(rb_freep) char *other = rb_file_real(claim->folder);

        if (!strcmp(real, other))
            return rb_why_set(why, RB_EREFUSED,
                              "spec.checkpoint.path: %.*s is where job %s (%s) keeps its "
                              "checkpoints: name another folder, or end that job first",
                              rb_error_fit(folder, FOLDER_MOST), folder, claim->name, claim->phase);
    }
    return 0;
}

void rb_submission_claims_done(struct rb_submission *job)
{
    for (size_t i = 0; i < job->n_claims; i++) {
        free(job->claims[i].folder);
        free(job->claims[i].name);
    }
    free(job->claims);
}
