/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/restore.h"

const Rb__Checkpoint *rb_restore_source(const struct rb_job_facts *job, struct rb_arena *arena,
                                        bool *ret_local)
{
    const Rb__Checkpoint *best = job->state.state->parked;

    *ret_local = best != NULL;
    for (size_t i = 0; i < job->checkpoints.n; i++) {
        const Rb__Checkpoint *each = job->checkpoints.at[i].checkpoint;

        if (!best || each->step > best->step || (*ret_local && each->step == best->step)) {
            best = each;
            *ret_local = false;
        }
    }
    if (job->job.job->resume && (!best || job->job.job->resume_step > best->step)) {
        Rb__Checkpoint *told = RB_ARENA_NEW(arena, Rb__Checkpoint, 1);

        rb__checkpoint__init(told);
        told->step = job->job.job->resume_step;
        told->path = job->job.job->resume;
        told->node = job->job.job->node;
        told->time = job->job.job->created;
        best = told;
        *ret_local = false;
    }
    return best;
}
