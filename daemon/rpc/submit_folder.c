/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint folder belongs to one job at a time: two would prune, and go on from, what the other
 * has written. */
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

bool rb_submission_shares(const Rb__Spec *spec, const Rb__Spec *other)
{
    const char *folder = rb_spec_checkpoints(spec), *others = rb_spec_checkpoints(other);
    RB_CLEANUP(rb_freep) char *real = folder && others ? rb_file_real(folder) : NULL;
    RB_CLEANUP(rb_freep) char *others_real = real ? rb_file_real(others) : NULL;

    return real && !strcmp(real, others_real);
}

int rb_submission_refuse_shared(const Rb__Spec *spec, const char *other, const char *phase,
                                struct rb_why *why)
{
    const char *folder = rb_spec_checkpoints(spec);

    return rb_why_set(why, RB_EREFUSED,
                      "spec.checkpoint.path: %.*s is where job %s (%s) keeps its checkpoints: "
                      "name another folder, or end that job first",
                      rb_error_fit(folder, FOLDER_MOST), folder, other, phase);
}

/* Who is told to end makes no checkpoint any more that anybody waits for. */
static bool lives(const struct rb_job_facts *job)
{
    const Rb__Wish *wish = job->wish.message ? job->wish.wish : NULL;

    return job->job.message && job->state.message && !rb_phase_final(job->state.state->phase) &&
           !(wish && (wish->cancelled || wish->deleted));
}

int rb_submission_alone(const Rb__Spec *spec, const struct rb_facts *facts, struct rb_why *why)
{
    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *job = &facts->jobs[i];

        if (lives(job) && rb_submission_shares(spec, job->job.job->spec))
            return rb_submission_refuse_shared(spec, job->job.job->name,
                                               rb_phase_text(job->state.state->phase), why);
    }
    return 0;
}
