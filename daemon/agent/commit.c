/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/report.h"

#include "base/arena.h"

#include <stdlib.h>

/* One under way. */
struct commit {
    struct rb_agent_about about; /* strings are owned */
    rb_agent_committed *done;
};

static void on_committed(int err, const struct rb_why *why, void *context)
{
    struct commit *commit = context;
    (void)why;
    if (err != RB_ECANCELED)
        commit->done(err, &commit->about);
    free((char *)commit->about.job);
    free((char *)commit->about.worker);
    free(commit);
}

void rb_agent_commit(const struct rb_writes *writes, const struct rb_agent_about *about,
                     rb_agent_committed *done)
{
    struct commit *commit = rb_alloc(sizeof(*commit));
    commit->about = *about;
    commit->about.job = rb_string(about->job);
    commit->about.worker = about->worker ? rb_string(about->worker) : NULL;
    commit->done = done;
    rb_store_commit(about->agent->daemon->store, writes, NULL, on_committed, commit);
}
