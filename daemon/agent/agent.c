/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's hands: the tables of jobs and workers, and a round of the rules after each change. */
#include "daemon/agent/inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Jobs ------------------------------------------------------------------------------------ */

bool rb_agent_id_valid(const char *id)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    return *id && strlen(id) <= 64 && strspn(id, allowed) == strlen(id);
}

struct rb_agent_job *rb_agent_job_known(struct rb_agent *agent, const char *id)
{
    struct rb_agent_job *job = agent->jobs;
    while (job && strcmp(job->id, id))
        job = job->next;
    return job;
}

struct rb_agent_job *rb_agent_job(struct rb_agent *agent, const char *id)
{
    struct rb_agent_job *job = rb_agent_job_known(agent, id);
    if (job)
        return job;
    job = rb_alloc(sizeof(*job));
    job->agent = agent;
    job->id = rb_string(id);
    job->folder = rb_format("%s/%s", agent->jobs_folder, id);
    rb__progress__init(&job->progress);
    job->next = agent->jobs;
    agent->jobs = job;
    return job;
}

struct rb_rows *rb_agent_rows(struct rb_agent_job *job, struct rb_why *why)
{
    if (job->rows)
        return job->rows;
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/metrics", job->folder);
    int err = rb_file_make_folder(job->folder, why);
    if (!err)
        err = rb_rows_open(path, &job->rows, why);
    return err ? NULL : job->rows;
}

static void job_free(struct rb_agent_job *job)
{
    struct rb_agent_job **at = &job->agent->jobs;
    while (*at != job)
        at = &(*at)->next;
    *at = job->next;
    for (struct rb_agent_checkpoint *pending; (pending = job->checkpoints);) {
        job->checkpoints = pending->next;
        free(pending->value.path);
        free(pending->value.node);
        free(pending);
    }
    rb_agent_plans_free(job);
    rb_rows_close(job->rows);
    free(job->id);
    free(job->folder);
    free(job->model);
    free(job->weights);
    free(job->profile);
    free(job);
}

static bool names_blob(const Rb__Job *job, const char *digest)
{
    return !strcmp(job->model, digest) || !strcmp(job->weights, digest) ||
           (job->profile && !strcmp(job->profile, digest));
}

static bool blob_used(const struct rb_facts *facts, const char *digest)
{
    for (size_t i = 0; i < facts->n_jobs; i++)
        if (facts->jobs[i].job.message && names_blob(facts->jobs[i].job.job, digest))
            return true;
    return false;
}

/* The job was deleted, and its workers are gone: so go its folder and its blobs. */
static void remove_job(struct rb_agent *agent, struct rb_agent_job *job,
                       const struct rb_facts *facts)
{
    struct rb_why why = {0};
    const char *blobs[] = {job->model, job->weights, job->profile};
    if (rb_file_remove(job->folder, &why))
        rb_log(RB_LOG_WARN, "job %s: its folder stays: %s", job->id, why.text);
    for (size_t i = 0; i < RB_COUNT(blobs); i++)
        if (blobs[i] && !blob_used(facts, blobs[i]))
            rb_blobs_remove(agent->daemon->blobs, blobs[i]);
    job_free(job);
}

static void keep_text(char **kept, const char *text)
{
    if (*kept && !strcmp(*kept, text))
        return;
    free(*kept);
    *kept = rb_string(text);
}

static bool has_workers(const struct rb_agent *agent, const struct rb_agent_job *job)
{
    for (const struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        if (worker->job == job)
            return true;
    return false;
}

/* Only a deletion that was seen to be asked for removes folders: an etcd that has lost its data
 * must not take the jobs' with it. */
static void follow_jobs(struct rb_agent *agent)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    for (size_t i = 0; i < facts->n_jobs; i++) {
        const struct rb_job_facts *found = &facts->jobs[i];
        if (!found->job.message || !rb_agent_id_valid(found->id))
            continue;
        struct rb_agent_job *job = rb_agent_job(agent, found->id);
        keep_text(&job->model, found->job.job->model);
        keep_text(&job->weights, found->job.job->weights);
        if (found->job.job->profile)
            keep_text(&job->profile, found->job.job->profile);
        job->deleted = found->wish.message && found->wish.wish->deleted;
    }
    for (struct rb_agent_job *job = agent->jobs, *next; job; job = next) {
        const struct rb_job_facts *found = rb_facts_job(facts, job->id);
        next = job->next;
        if ((!found || !found->job.message) && job->deleted && !has_workers(agent, job))
            remove_job(agent, job, facts);
    }
}

/* ---- Actions --------------------------------------------------------------------------------- */

/* What had the device before is dead and its report about to be replaced. */
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
    if (err) {
        rb_log(RB_LOG_WARN, "%s; trying again", why->text);
        agent->fetches++;
        rb_agent_poke_in(agent, RB_AGENT_RETRY_MS);
    } else {
        rb_agent_poke(agent);
    }
}

/* From where it was made; when that fails, from one node after the other. */
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

static void tell_to_leave(struct rb_agent *agent, struct rb_worker *worker, bool saving)
{
    RB_CLEANUP(rb_freep) char *park = rb_format("%s/park", worker->job->folder);
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    Rb__Leave leave = RB__LEAVE__INIT;
    leave.folder = saving ? park : NULL;
    message.leave = &leave;
    worker->told.left = uv_now(agent->daemon->loop);
    worker->told.saving = saving;
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
        dead.state = RB__WORKER_REPORT__STATE__DEAD;
        if (!dead.reason)
            dead.reason = "its process ended while rubatod was away";
        rb_writes_put(&writes, action->report->revision, &dead.base, "%s", action->report->key);
    } else {
        rb_writes_delete(&writes, action->report->revision, "%s", action->report->key);
    }
    rb_store_commit(agent->daemon->store, &writes, NULL, 0, on_written, agent);
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
        rb_store_commit(agent->daemon->store, &writes, NULL, 0, on_written, agent);
        rb_writes_done(&writes);
    }
    rb_worker_free(worker);
}

static void act(struct rb_agent *agent, const struct rb_agent_action *action,
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

/* ---- A round --------------------------------------------------------------------------------- */

static bool has_blob(const char *digest, void *context)
{
    const struct rb_agent *agent = context;
    return rb_blobs_has(agent->daemon->blobs, digest);
}

static void decide(struct rb_agent *agent)
{
    struct rb_arena arena = {0};
    struct rb_agent_actions actions;
    size_t n = 0, n_deaths = 0;
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        n++;
    struct rb_agent_worker *told = RB_ARENA_NEW(&arena, struct rb_agent_worker, n + 1);
    struct rb_worker **workers = RB_ARENA_NEW(&arena, struct rb_worker *, n + 1);
    n = 0;
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next) {
        workers[n] = worker;
        told[n++] = worker->told;
    }
    const struct rb_agent_death *deaths = rb_agent_deaths_known(agent, &arena, &n_deaths);
    struct rb_agent_view view = {
        .facts = rb_store_facts(agent->daemon->store),
        .node = agent->node,
        .workers = told,
        .n = n,
        .deaths = deaths,
        .n_deaths = n_deaths,
        .now_ms = uv_now(agent->daemon->loop),
        .unix_ms = rb_clock_unix_ms(),
        .has_blob = has_blob,
        .context = agent,
    };
    rb_agent_decide(&view, &arena, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct rb_agent_action *action = &actions.at[i];
        bool of_worker = action->kind != RB_AGENT_SPAWN && action->kind != RB_AGENT_FETCH &&
                         action->kind != RB_AGENT_REPORT_DEAD &&
                         action->kind != RB_AGENT_REPORT_DELETE;
        /* An action before this one may have dropped the worker. */
        struct rb_worker *worker = of_worker ? workers[action->worker] : NULL;
        bool there = !of_worker;
        for (struct rb_worker *at = agent->workers; at && !there; at = at->next)
            there = at == worker;
        if (there)
            act(agent, action, worker, &arena);
    }
    if (actions.wake_ms != UINT64_MAX)
        rb_agent_poke_in(agent, actions.wake_ms - view.now_ms + 1);
    rb_arena_done(&arena);
}

static void on_soon(uv_timer_t *timer)
{
    struct rb_agent *agent = timer->data;
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    if (!agent->started || !rb_store_synced(agent->daemon->store))
        return;
    if (facts->leader.message && (uint64_t)facts->leader.created > agent->fence)
        agent->fence = (uint64_t)facts->leader.created;
    follow_jobs(agent);
    rb_agent_deaths_tell(agent);
    decide(agent);
    rb_agent_report_all(agent);
    for (size_t i = 0; i < facts->n_jobs; i++)
        rb_agent_plan_ahead(agent, &facts->jobs[i]);
}

void rb_agent_poke(struct rb_agent *agent)
{
    uv_timer_start(&agent->soon, on_soon, 0, 0);
}

static void on_clock(uv_timer_t *timer)
{
    rb_agent_poke(timer->data);
}

void rb_agent_poke_in(struct rb_agent *agent, uint64_t ms)
{
    if (!uv_is_active((uv_handle_t *)&agent->clock) || uv_timer_get_due_in(&agent->clock) > ms)
        uv_timer_start(&agent->clock, on_clock, ms, 0);
}

static void on_facts(void *context)
{
    rb_agent_poke(context);
}

/* ---- Life ------------------------------------------------------------------------------------ */

/* Where peers on other machines reach this node's workers: where they reach its rubatod. */
static char *peer_host(const char *listen)
{
    const char *colon = listen ? strrchr(listen, ':') : NULL;
    if (!colon)
        return rb_string("127.0.0.1");
    if (listen[0] == '[' && colon > listen + 2)
        return rb_format("%.*s", (int)(colon - listen) - 2, listen + 1);
    return rb_format("%.*s", (int)(colon - listen), listen);
}

struct rb_agent *rb_agent_new(struct rb_daemon *daemon)
{
    struct rb_agent *agent = rb_alloc(sizeof(*agent));
    agent->daemon = daemon;
    agent->node = daemon->settings->node;
    agent->run_folder = rb_format("%s/run", daemon->settings->state_dir);
    agent->jobs_folder = rb_format("%s/jobs", daemon->settings->state_dir);
    agent->worker_program = rb_program_beside("rubato-worker");
    agent->host = peer_host(daemon->settings->listen);
    agent->fence = 1;
    agent->next_save = 1;
    uv_timer_init(daemon->loop, &agent->soon);
    uv_timer_init(daemon->loop, &agent->clock);
    uv_timer_init(daemon->loop, &agent->watch);
    agent->soon.data = agent->clock.data = agent->watch.data = agent;
    rb_server_add(daemon->server, rb_agent_methods, agent);
    rb_server_add(daemon->server, rb_agent_death_methods, agent);
    return agent;
}

int rb_agent_start(struct rb_agent *agent, struct rb_why *why)
{
    int err = rb_file_make_folder(agent->run_folder, why);
    if (!err)
        err = rb_file_make_folder(agent->jobs_folder, why);
    if (!err)
        err = rb_agent_adopt(agent, why);
    if (err)
        return err;
    agent->started = true;
    rb_store_watch(agent->daemon->store, on_facts, agent);
    rb_agent_poke(agent);
    return RB_OK;
}

size_t rb_agent_workers(const struct rb_agent *agent)
{
    size_t n = 0;
    for (const struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        n += !worker->told.gone;
    return n;
}

bool rb_agent_idle(const struct rb_agent *agent)
{
    return !agent->workers;
}

void rb_agent_kill_all(struct rb_agent *agent)
{
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next)
        rb_process_kill(worker->process);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_agent *agent = handle->data;
    if (--agent->closing)
        return;
    free(agent->run_folder);
    free(agent->jobs_folder);
    free(agent->worker_program);
    free(agent->host);
    free(agent);
}

void rb_agent_free(struct rb_agent *agent)
{
    if (!agent)
        return;
    while (agent->workers)
        rb_worker_free(agent->workers);
    while (agent->jobs)
        job_free(agent->jobs);
    rb_agent_deaths_free(agent);
    agent->started = false;
    agent->closing = 3;
    uv_close((uv_handle_t *)&agent->soon, on_closed);
    uv_close((uv_handle_t *)&agent->clock, on_closed);
    uv_close((uv_handle_t *)&agent->watch, on_closed);
}
