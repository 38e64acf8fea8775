/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules decided, done: processes, orders to workers, blobs, reports of the dead. */
#include "daemon/agent/inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/plan.h"
#include "daemon/agent/rules.h"
#include "daemon/agent/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The worker that had the device before is dead, and its report is about to be replaced. */
static void drop_gone(struct rb_agent *agent, const char *job, uint32_t device)
{
    for (struct rb_worker *worker = agent->workers, *next; worker; worker = next) {
        next = worker->next;
        if (worker->told.gone && worker->told.device == device && !strcmp(worker->told.job, job))
            rb_worker_free(worker);
    }
}

static void spawn(struct rb_agent *agent, const struct rb_agent_action *action)
{
    struct rb_why why = {0};
    char seed[300], digest[33], name[64];
    const char *job = action->job->id;
    if (!rb_agent_id_valid(job))
        return;
    drop_gone(agent, job, action->device);
    snprintf(seed, sizeof(seed), "%s %s %u %" PRIu64, agent->node, job, action->device,
             rb_clock_unix_ms() * 1000003 + rb_clock_ns());
    rb_hash_digest(seed, strlen(seed), digest);
    snprintf(name, sizeof(name), "d%u-%.8s", action->device, digest);
    struct rb_worker *worker =
        rb_worker_new(agent, job, name, action->device, action->configuration->number);
    if (rb_worker_spawn(worker, &why)) {
        rb_log(RB_LOG_ERROR, "job %s: %s", job, why.text);
        rb_worker_set_reason(worker, "%s", why.text);
        worker->failed = worker->told.gone = true;
    } else {
        rb_log(RB_LOG_INFO, "job %s: worker %s on device %u for configuration %u (process %ld)",
               job, name, action->device, action->configuration->number, (long)worker->pid);
        rb_fault("daemon.spawned");
    }
}

static void on_fetched(int err, const struct rb_why *why, void *context)
{
    struct rb_agent *agent = context;
    if (err && err != RB_ECANCELED) {
        rb_log(RB_LOG_WARN, "%s; trying again", why->text);
        agent->fetches++;
        rb_agent_poke_in(agent, RB_AGENT_RETRY_MS);
    } else {
        rb_agent_poke(agent);
    }
}

/* Fetch a blob from the node where it was made; when that fails, from one node after the other. */
static void fetch(struct rb_agent *agent, const struct rb_agent_action *action)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    const char *node = action->node;
    uint32_t turn = agent->fetches % (uint32_t)(facts->nodes.n + 1);
    if (turn)
        node = facts->nodes.at[turn - 1].name;
    if (!strcmp(node, agent->node)) {
        agent->fetches++;
        rb_agent_poke_in(agent, RB_AGENT_RETRY_MS);
        return;
    }
    rb_blobs_fetch(agent->daemon->blobs, agent->daemon->server, node, action->text, on_fetched,
                   agent);
}

static void configure(struct rb_agent *agent, const struct rb_agent_action *action,
                      struct rb_worker *worker, struct rb_arena *arena)
{
    struct rb_why why = {0};
    Rb__Configure order;
    Rb__Go go = RB__GO__INIT;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    int err = rb_agent_configure(agent, action->job, action->configuration, action->rank, arena,
                                 &order, &why);
    if (err == RB_EAGAIN)
        return;
    if (err) {
        rb_log(RB_LOG_ERROR, "job %s: configuration %u: %s", action->job->id,
               action->configuration->number, why.text);
        worker->told.unready = action->configuration->number;
        rb_worker_set_reason(worker, "%s", why.text);
        rb_agent_poke(agent);
        return;
    }
    message.configure = &order;
    if (action->foreseen) {
        go.number = order.number;
        message.go = &go;
        worker->told.went = order.number;
        rb_worker_goes_without(worker, action->job, action->configuration);
        rb_fault("daemon.foreseen");
    }
    rb_worker_send(worker, &message);
    worker->told.configured = action->configuration->number;
    rb_fault("daemon.configured");
}

static void forget_unsaved(struct rb_worker *worker)
{
    free(RB_TAKE(worker->reason));
    worker->save_failed = false;
}

static void tell_to_leave(struct rb_agent *agent, struct rb_worker *worker, bool saving)
{
    RB_CLEANUP(rb_freep) char *park = rb_format("%s/park", worker->job->folder);
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Leave leave = RB__LEAVE__INIT;
    leave.folder = saving ? park : NULL;
    message.leave = &leave;
    worker->told.left = uv_now(agent->daemon->loop);
    worker->told.saving = saving;
    if (saving)
        forget_unsaved(worker); /* a reason from now on says why it has not saved yet */
    rb_worker_send(worker, &message);
}

static void tell_to_stay(struct rb_worker *worker)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    message.has_stay = message.stay = 1;
    worker->told.left = 0;
    worker->told.saving = false;
    forget_unsaved(worker);
    rb_worker_send(worker, &message);
}

/* Time counts from now, for another step or for this order.  A worker that saves does no step. */
static void tell_to_freeze(struct rb_agent *agent, struct rb_worker *worker, const char *node)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    uint64_t now = uv_now(agent->daemon->loop);
    rb_log(RB_LOG_WARN,
           "job %s: worker %s has done no step for %" PRIu64 " s, and node %s does not answer: it "
           "is to freeze",
           worker->told.job, worker->told.worker, (now - worker->told.stepped) / 1000, node);
    message.has_freeze = 1;
    message.freeze = worker->newest;
    worker->told.stepped = worker->told.saving ? 0 : now;
    rb_worker_send(worker, &message);
}

static void tell_number(struct rb_worker *worker, const struct rb_agent_action *action)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Go go = RB__GO__INIT;
    Rb__Abandon abandon = RB__ABANDON__INIT;
    if (action->kind == RB_AGENT_GO) {
        go.number = action->number;
        message.go = &go;
        worker->told.went = action->number;
    } else {
        abandon.number = action->number;
        abandon.reason = (char *)action->text;
        message.abandon = &abandon;
        worker->told.abandoned = action->number;
        if (worker->told.ready == action->number)
            worker->told.ready = worker->told.active;
    }
    rb_worker_send(worker, &message);
    if (message.go)
        rb_fault("daemon.went");
}

static void on_written(int err, const struct rb_why *why, void *context)
{
    (void)why;
    if (err && err != RB_ECANCELED)
        rb_agent_poke_in(context, RB_AGENT_RETRY_MS);
}

/* A report of a process that is not here: say that it is dead, or remove it. */
static void settle_report(struct rb_agent *agent, const struct rb_agent_action *action)
{
    struct rb_writes writes = {0};
    if (action->kind == RB_AGENT_REPORT_DEAD) {
        Rb__WorkerReport dead = *action->report->worker;
        Rb__Checkpoint *parked =
            dead.saved ? NULL : rb_agent_find_parked(agent, action->job, dead.worker, dead.active);
        dead.state = RB__WORKER_REPORT__STATE__DEAD;
        if (parked)
            dead.saved = parked;
        if (!dead.reason)
            dead.reason = "its process ended while rubatod was away";
        rb_writes_put(&writes, action->report->revision, &dead.base, "%s", action->report->key);
        if (parked)
            rb__checkpoint__free_unpacked(parked, NULL);
    } else {
        rb_writes_delete(&writes, action->report->revision, "%s", action->report->key);
    }
    rb_store_commit(agent->daemon->store, &writes, NULL, on_written, agent);
    rb_writes_done(&writes);
}

static void forget(struct rb_agent *agent, const struct rb_agent_action *action,
                   struct rb_worker *worker)
{
    const struct rb_fact *report =
        action->job ? rb_facts_report(action->job, agent->node, worker->told.device) : NULL;
    if (report && !strcmp(report->worker->worker, worker->told.worker)) {
        struct rb_writes writes = {0};
        rb_writes_delete(&writes, report->revision, "%s", report->key);
        rb_store_commit(agent->daemon->store, &writes, NULL, on_written, agent);
        rb_writes_done(&writes);
    }
    rb_worker_free(worker);
}

void rb_agent_act(struct rb_agent *agent, const struct rb_agent_action *action,
                  struct rb_worker *worker, struct rb_arena *arena)
{
    switch (action->kind) {
    case RB_AGENT_SPAWN:
        spawn(agent, action);
        return;
    case RB_AGENT_FETCH:
        fetch(agent, action);
        return;
    case RB_AGENT_CONFIGURE:
        configure(agent, action, worker, arena);
        return;
    case RB_AGENT_GO:
    case RB_AGENT_ABANDON:
        tell_number(worker, action);
        return;
    case RB_AGENT_LEAVE:
    case RB_AGENT_LEAVE_SAVING:
        tell_to_leave(agent, worker, action->kind == RB_AGENT_LEAVE_SAVING);
        return;
    case RB_AGENT_STAY:
        tell_to_stay(worker);
        return;
    case RB_AGENT_FREEZE:
        tell_to_freeze(agent, worker, action->node);
        return;
    case RB_AGENT_ASK: /* all at once, behind the round */
        return;
    case RB_AGENT_KILL:
        rb_agent_kill(worker, action->text);
        return;
    case RB_AGENT_FORGET:
        forget(agent, action, worker);
        return;
    case RB_AGENT_REPORT_DEAD:
    case RB_AGENT_REPORT_DELETE:
        settle_report(agent, action);
        return;
    }
}
