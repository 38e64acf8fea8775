/* SPDX-License-Identifier: Apache-2.0 */
/* The state that a worker has parked, where it ended before it could say so, or together with the
 * rubatod that it told. */
#include "daemon/agent/checkpoints.h"

#include "base/arena.h"
#include "proto/checkpoint_folder.h"
#include "proto/digested.h"

#include <stdlib.h>
#include <string.h>

static uint64_t bytes_of(json_t *manifest)
{
    const char *name;
    json_t *file;
    uint64_t bytes = 0;

    json_object_foreach(json_object_get(manifest, "files"), name, file) bytes +=
        (uint64_t)json_integer_value(json_object_get(file, "bytes"));
    return bytes;
}

/* Is the state of this pause, and not left by an earlier one? */
static bool is_new(const struct rb_job_facts *job, const char *path, int64_t step)
{
    const Rb__Checkpoint *before = job->state.state->parked;

    return (!before || strcmp(before->path, path) != 0) &&
           (!job->progress.message || job->progress.progress->step <= step);
}

Rb__Checkpoint *rb_agent_find_parked(const struct rb_agent *agent, const struct rb_job_facts *job,
                                     const char *worker, uint32_t configuration)
{
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/%s/park", agent->jobs_folder, job->id);
    int64_t step = rb_checkpoint_latest(folder);
    RB_CLEANUP(rb_freep) char *name = rb_checkpoint_name(step);
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    Rb__Checkpoint *found = NULL;
    json_t *manifest;

    if (!job->state.message || !job->state.state->saver ||
        strcmp(job->state.state->saver, worker) != 0 || !is_new(job, path, step) ||
        rb_digested_open(path, &manifest, NULL))
        return NULL;
    if (json_integer_value(json_object_get(manifest, "step")) == step) {
        Rb__Saved saved = RB__SAVED__INIT;

        saved.step = step;
        saved.folder = path;
        saved.bytes = bytes_of(manifest);
        found = rb_agent_checkpoint_of(agent, &saved, configuration);
    }
    json_decref(manifest);
    return found;
}
