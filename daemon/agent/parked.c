/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker has parked that ended with the rubatod before this one: nobody else knows of it. */
#include "daemon/agent/inside.h"

#include "base/arena.h"
#include "proto/digested.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The newest in the folder; -1: none. */
static int64_t newest_step(const char *folder)
{
    DIR *listing = opendir(folder);
    const struct dirent *entry;
    int64_t newest = -1, step;

    while (listing && (entry = readdir(listing)))
        if (sscanf(entry->d_name, "step-%" SCNd64, &step) == 1 && step > newest)
            newest = step;
    if (listing)
        closedir(listing);
    return newest;
}

static uint64_t bytes_of(json_t *manifest)
{
    const char *name;
    json_t *file;
    uint64_t bytes = 0;

    json_object_foreach(json_object_get(manifest, "files"), name, file) bytes +=
        (uint64_t)json_integer_value(json_object_get(file, "bytes"));
    return bytes;
}

/* Of this pause, and not what an earlier one has left? */
static bool is_new(const struct rb_job_facts *job, const char *path, int64_t step)
{
    const Rb__Checkpoint *before = job->state.state->parked;

    return (!before || strcmp(before->path, path) != 0) &&
           (!job->progress.message || job->progress.progress->step <= step);
}

Rb__Checkpoint *rb_agent_find_parked(const struct rb_agent *agent, const struct rb_job_facts *job,
                                     const Rb__WorkerReport *report)
{
    RB_CLEANUP(rb_freep) char *folder = rb_format("%s/%s/park", agent->jobs_folder, job->id);
    int64_t step = newest_step(folder);
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/step-%08" PRId64, folder, step);
    Rb__Checkpoint *found = NULL;
    json_t *manifest;

    if (report->saved || !job->state.message || !job->state.state->saver ||
        strcmp(job->state.state->saver, report->worker) != 0 || !is_new(job, path, step) ||
        rb_digested_open(path, &manifest, NULL))
        return NULL;
    if (json_integer_value(json_object_get(manifest, "step")) == step) {
        Rb__Saved saved = RB__SAVED__INIT;

        saved.step = step;
        saved.folder = path;
        saved.bytes = bytes_of(manifest);
        found = rb_agent_checkpoint_of(agent, &saved, report->active);
    }
    json_decref(manifest);
    return found;
}
