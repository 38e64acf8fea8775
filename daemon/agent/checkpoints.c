/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that workers have written, until facts have them. */
#include "daemon/agent/checkpoints.h"

#include "base/arena.h"
#include "base/clock.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/report.h"
#include "daemon/agent/worker.h"
#include "daemon/facts/publish.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Rb__Checkpoint *rb_agent_checkpoint_of(const struct rb_agent *agent, const Rb__Saved *saved,
                                       uint32_t configuration)
{
    Rb__Checkpoint *checkpoint = rb_alloc(sizeof(*checkpoint));
    rb__checkpoint__init(checkpoint);
    checkpoint->step = saved->step;
    checkpoint->path = rb_string(saved->folder);
    checkpoint->node = rb_string(agent->node);
    checkpoint->time = rb_clock_unix_ms();
    checkpoint->bytes = saved->bytes;
    checkpoint->has_configuration = true;
    checkpoint->configuration = configuration;
    return checkpoint;
}

void rb_agent_take_checkpoint(struct rb_worker *worker, const Rb__Saved *saved)
{
    struct rb_agent_job *job = worker->job;
    Rb__Checkpoint *made = rb_agent_checkpoint_of(worker->agent, saved, worker->told.active);
    struct rb_agent_checkpoint *pending = rb_alloc(sizeof(*pending));
    pending->value = *made; /* takes its strings */
    free(made);
    pending->next = job->checkpoints;
    job->checkpoints = pending;
    rb_agent_poke(worker->agent);
}

static void checkpoint_drop(struct rb_agent_job *job, int64_t step)
{
    for (struct rb_agent_checkpoint **at = &job->checkpoints; *at;) {
        struct rb_agent_checkpoint *pending = *at;
        if (pending->value.step != step) {
            at = &pending->next;
            continue;
        }
        *at = pending->next;
        free(pending->value.path);
        free(pending->value.node);
        free(pending);
    }
}

static void on_registered(int err, const struct rb_agent_about *about)
{
    struct rb_agent_job *job = rb_agent_job_known(about->agent, about->job);
    if (!job)
        return;
    if (!err)
        checkpoint_drop(job, about->step);
    for (struct rb_agent_checkpoint *pending = job->checkpoints; pending; pending = pending->next)
        pending->sent = pending->sent && pending->value.step != about->step;
    rb_agent_poke_in(about->agent, err ? RB_AGENT_RETRY_MS : 0);
}

/* Workers remove old checkpoints, as `keep` says, and users remove what they like.  Which folders
 * are gone is looked up on a thread, as folders may lie on a network. */
struct rb_agent_check {
    struct rb_agent_check *next, **self;
    uv_work_t work;
    struct rb_agent *agent; /* NULL: it is gone */
    char *job;
    int64_t step; /* of the new checkpoint, which waits for this check */
    char *path;
    bool gone;
    size_t n;
    struct {
        char *key, *path;
        int64_t revision; /* of the fact */
        bool gone;
    } at[];
};

static void register_checkpoint(struct rb_agent_job *job, struct rb_agent_checkpoint *pending,
                                const struct rb_job_facts *facts,
                                const struct rb_agent_check *check)
{
    struct rb_agent *agent = job->agent;
    struct rb_writes writes = {0};
    rb_writes_guard(&writes, facts->state.revision, "%s", facts->state.key);
    rb_writes_put(&writes, RB_ANY_REVISION, &pending->value.base, "jobs/%s/checkpoints/%012" PRId64,
                  job->id, pending->value.step);
    for (size_t i = 0; i < check->n && writes.n < RB_WRITES_MOST / 2; i++)
        if (check->at[i].gone)
            rb_writes_delete(&writes, check->at[i].revision, "%s", check->at[i].key);
    rb_agent_commit(
        &writes,
        &(struct rb_agent_about){.agent = agent, .job = job->id, .step = pending->value.step},
        on_registered);
    rb_writes_done(&writes);
}

/* ---- Those that were removed ----------------------------------------------------------------- */

static void check_free(struct rb_agent_check *check)
{
    for (size_t i = 0; i < check->n; i++) {
        free(check->at[i].key);
        free(check->at[i].path);
    }
    free(check->job);
    free(check->path);
    free(check);
}

static bool is_gone(const char *path)
{
    return access(path, F_OK) && errno == ENOENT;
}

static void check_all(uv_work_t *work)
{
    struct rb_agent_check *check = work->data;
    check->gone = is_gone(check->path);
    for (size_t i = 0; i < check->n; i++)
        check->at[i].gone = is_gone(check->at[i].path);
}

/* After the check: is the new checkpoint still to be registered? */
static void on_checked(uv_work_t *work, int status)
{
    struct rb_agent_check *check = work->data;
    struct rb_agent *agent = check->agent;
    struct rb_agent_job *job = agent ? rb_agent_job_known(agent, check->job) : NULL;
    const struct rb_job_facts *facts =
        job ? rb_facts_job(rb_store_facts(agent->daemon->store), job->id) : NULL;
    struct rb_agent_checkpoint *pending = job ? job->checkpoints : NULL;
    (void)status;
    if (agent) {
        *check->self = check->next;
        if (check->next)
            check->next->self = check->self;
    }
    while (pending && pending->value.step != check->step)
        pending = pending->next;
    if (pending && check->gone) {
        checkpoint_drop(job, check->step); /* told again, by a worker that was there before us */
    } else if (pending && facts &&
               rb_publish_checkpoint(facts, &pending->value) == RB_PUBLISH_NOW) {
        register_checkpoint(job, pending, facts, check);
    } else if (pending) {
        pending->sent = false;
        rb_agent_poke_in(agent, RB_AGENT_RETRY_MS);
    }
    check_free(check);
}

static void check_before(struct rb_agent_job *job, struct rb_agent_checkpoint *pending,
                         const struct rb_job_facts *facts)
{
    struct rb_agent *agent = job->agent;
    struct rb_agent_check *check =
        rb_alloc(sizeof(*check) + facts->checkpoints.n * sizeof(check->at[0]));
    check->work.data = check;
    check->agent = agent;
    check->job = rb_string(job->id);
    check->step = pending->value.step;
    check->path = rb_string(pending->value.path);
    for (size_t i = 0; i < facts->checkpoints.n; i++) {
        const struct rb_fact *fact = &facts->checkpoints.at[i];
        if (fact->checkpoint->step == check->step || strcmp(fact->checkpoint->node, agent->node))
            continue;
        check->at[check->n].key = rb_string(fact->key);
        check->at[check->n].revision = fact->revision;
        check->at[check->n++].path = rb_string(fact->checkpoint->path);
    }
    check->next = agent->checks;
    check->self = &agent->checks;
    if (check->next)
        check->next->self = &check->next;
    agent->checks = check;
    pending->sent = true;
    uv_queue_work(agent->daemon->loop, &check->work, check_all, on_checked);
}

void rb_agent_checks_drop(struct rb_agent *agent)
{
    for (struct rb_agent_check *check = agent->checks; check; check = check->next)
        check->agent = NULL;
    agent->checks = NULL;
}

void rb_agent_publish_checkpoints(struct rb_agent_job *job, const struct rb_job_facts *facts)
{
    for (struct rb_agent_checkpoint *pending = job->checkpoints, *next; pending; pending = next) {
        next = pending->next;
        if (pending->sent)
            continue;
        enum rb_publish may = rb_publish_checkpoint(facts, &pending->value);
        if (may == RB_PUBLISH_NOW) {
            check_before(job, pending, facts);
        } else if (may == RB_PUBLISH_NEVER) {
            checkpoint_drop(job, pending->value.step); /* its writer was replaced */
            next = job->checkpoints;
        }
    }
}
