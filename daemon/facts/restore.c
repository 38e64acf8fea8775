/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/restore.h"

#include <string.h>

/* A checkpoint that was written anew, behind a fall back to an older one, is another. */
static bool is_same(const Rb__Checkpoint *a, const Rb__Checkpoint *b)
{
    return a->time == b->time && a->step == b->step && !strcmp(a->path, b->path);
}

/* Could no member load it, and has none since?  That the job has gone on from an older one makes it
 * no better. */
static bool is_unreadable(const struct rb_job_facts *job, const Rb__Checkpoint *source)
{
    unsigned failures = 0;
    bool unreadable = false;

    for (size_t i = job->configurations.n; i-- > 0;) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        if (!conf->restore || !is_same(conf->restore, source))
            continue;
        if (rb_configuration_took_over(conf))
            break;
        failures += conf->has_failed;
        unreadable |= conf->has_failed && conf->unreadable;
    }
    return failures >= RB_START_TRIES && unreadable;
}

unsigned rb_restore_failures(const struct rb_job_facts *job, const Rb__Checkpoint *source)
{
    unsigned failures = 0;

    for (size_t i = job->configurations.n; i-- > 0;) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        if (rb_configuration_took_over(conf))
            break;
        failures += conf->has_failed && conf->restore && is_same(conf->restore, source);
    }
    return failures;
}

struct search {
    const struct rb_job_facts *job;
    const char *const *without;
    const Rb__Checkpoint *best;
    bool local, readable;
};

/* Of the checkpoints of one step, one that all can read is better. */
static void consider(struct search *search, const Rb__Checkpoint *each, bool local)
{
    const Rb__Checkpoint *best = search->best;
    bool readable = !is_unreadable(search->job, each);

    for (const char *const *path = search->without; path && *path; path++)
        if (!strcmp(*path, each->path))
            return;
    if (best && search->readable && !readable)
        return;
    if (best && search->readable == readable &&
        (each->step < best->step || (each->step == best->step && !search->local)))
        return;
    search->best = each;
    search->local = local;
    search->readable = readable;
}

const Rb__Checkpoint *rb_restore_source(const struct rb_job_facts *job, struct rb_arena *arena,
                                        bool *ret_local)
{
    return rb_restore_without(job, NULL, arena, ret_local);
}

const Rb__Checkpoint *rb_restore_without(const struct rb_job_facts *job, const char *const *paths,
                                         struct rb_arena *arena, bool *ret_local)
{
    struct search search = {.job = job, .without = paths};

    if (job->state.state->parked)
        consider(&search, job->state.state->parked, true);
    for (size_t i = 0; i < job->checkpoints.n; i++)
        consider(&search, job->checkpoints.at[i].checkpoint, false);
    if (job->job.job->resume &&
        (!search.readable || !search.best || job->job.job->resume_step > search.best->step)) {
        Rb__Checkpoint *told = RB_ARENA_NEW(arena, Rb__Checkpoint, 1);

        rb__checkpoint__init(told);
        told->step = job->job.job->resume_step;
        told->path = job->job.job->resume;
        told->node = job->job.job->node;
        told->time = job->job.job->created;
        consider(&search, told, false);
    }
    *ret_local = search.local;
    return search.best;
}
