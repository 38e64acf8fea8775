/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that workers have written, until facts have them. */
#include "daemon/agent/inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "daemon/facts/publish.h"

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

/* Those of this node whose folders the workers have removed, as `keep` says. */
static void forget_removed(const struct rb_agent *agent, const struct rb_job_facts *facts,
                           int64_t step, struct rb_writes *writes)
{
    for (size_t i = 0; i < facts->checkpoints.n && writes->n < RB_WRITES_MOST / 2; i++) {
        const struct rb_fact *fact = &facts->checkpoints.at[i];
        if (fact->checkpoint->step != step && !strcmp(fact->checkpoint->node, agent->node) &&
            access(fact->checkpoint->path, F_OK))
            rb_writes_delete(writes, RB_ANY_REVISION, "%s", fact->key);
    }
}

static void register_checkpoint(struct rb_agent_job *job, struct rb_agent_checkpoint *pending,
                                const struct rb_job_facts *facts)
{
    struct rb_agent *agent = job->agent;
    struct rb_writes writes = {0};
    rb_writes_guard(&writes, facts->state.revision, "%s", facts->state.key);
    rb_writes_put(&writes, RB_ANY_REVISION, &pending->value.base, "jobs/%s/checkpoints/%012" PRId64,
                  job->id, pending->value.step);
    forget_removed(agent, facts, pending->value.step, &writes);
    pending->sent = true;
    rb_agent_commit(
        &writes,
        &(struct rb_agent_about){.agent = agent, .job = job->id, .step = pending->value.step},
        on_registered);
    rb_writes_done(&writes);
}

void rb_agent_publish_checkpoints(struct rb_agent_job *job, const struct rb_job_facts *facts)
{
    for (struct rb_agent_checkpoint *pending = job->checkpoints, *next; pending; pending = next) {
        next = pending->next;
        if (pending->sent)
            continue;
        enum rb_publish may = rb_publish_checkpoint(facts, &pending->value);
        if (may == RB_PUBLISH_NOW) {
            register_checkpoint(job, pending, facts);
        } else if (may == RB_PUBLISH_NEVER) {
            checkpoint_drop(job, pending->value.step); /* its writer was replaced */
            next = job->checkpoints;
        }
    }
}
