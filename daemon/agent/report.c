/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to facts: a report a worker, and of rank 0 progress and checkpoints, which are
 * published only while the job's active configuration is the one that they come from. */
#include "daemon/agent/inside.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/facts/publish.h"
#include "proto/reflect.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Commits may end when what they are about is gone: they know it by name. */
struct about {
    struct rb_agent *agent;
    char *job, *worker;
    int64_t step;
};

static struct about *new_about(struct rb_agent *agent, const char *job, const char *worker,
                               int64_t step)
{
    struct about *about = rb_alloc(sizeof(*about));
    about->agent = agent;
    about->job = rb_string(job);
    about->worker = worker ? rb_string(worker) : NULL;
    about->step = step;
    return about;
}

static void about_free(struct about *about)
{
    free(about->job);
    free(about->worker);
    free(about);
}

/* ---- Reports --------------------------------------------------------------------------------- */

static Rb__WorkerReport__State state_of(const struct rb_worker *worker)
{
    if (worker->told.gone)
        return worker->failed ? RB__WORKER_REPORT__STATE__FAILED : RB__WORKER_REPORT__STATE__DEAD;
    if (worker->done)
        return RB__WORKER_REPORT__STATE__DONE;
    if (worker->frozen)
        return RB__WORKER_REPORT__STATE__FROZEN;
    if (worker->told.active)
        return RB__WORKER_REPORT__STATE__TRAINING;
    return worker->n_addresses ? RB__WORKER_REPORT__STATE__IDLE
                               : RB__WORKER_REPORT__STATE__STARTING;
}

/* known: what facts have of it, or NULL. */
static char *report_text(const struct rb_worker *worker, const Rb__WorkerReport *known)
{
    Rb__WorkerReport report = RB__WORKER_REPORT__INIT;
    report.worker = (char *)worker->told.worker;
    report.state = state_of(worker);
    report.has_pid = worker->pid != 0;
    report.pid = (uint32_t)worker->pid;
    report.addresses = worker->addresses;
    report.n_addresses = worker->n_addresses;
    report.has_ready = report.has_active = report.has_level = report.has_spawned_for = true;
    report.ready = worker->told.ready;
    report.active = worker->told.active;
    report.level = worker->level;
    report.spawned_for = worker->told.spawned_for;
    report.has_unready = worker->told.unready != 0;
    report.unready = worker->told.unready;
    report.reason = worker->reason;
    report.has_lost = report.lost = worker->lost;
    if (worker->flipped) {
        report.has_flipped = report.has_bytes_moved = report.has_first_step = true;
        report.flipped = worker->flipped;
        report.bytes_moved = worker->bytes_moved;
        report.first_step = worker->first_step;
    }
    report.has_rank = worker->has_rank;
    report.rank = worker->rank;
    report.microbatch_us = rb_publish_pace(known, worker->microbatch_us);
    report.has_microbatch_us = report.microbatch_us != 0;
    report.has_ended = worker->ended != 0;
    report.ended = worker->ended;
    if (worker->foreseen && worker->foreseen == worker->told.active) {
        report.without = worker->without;
        report.n_without = worker->n_without;
    }
    report.saved = worker->saved;
    return rb_reflect_to_text(&report.base);
}

static void on_reported(int err, const struct rb_why *why, void *context)
{
    struct about *about = context;
    (void)why;
    if (err == RB_ECANCELED) {
        about_free(about);
        return;
    }
    for (struct rb_worker *worker = about->agent->workers; worker; worker = worker->next)
        if (!strcmp(worker->told.worker, about->worker))
            worker->report_sent = false;
    if (!err)
        rb_fault("daemon.reported");
    if (err)
        rb_agent_poke_in(about->agent, RB_AGENT_RETRY_MS);
    else
        rb_agent_poke(about->agent);
    about_free(about);
}

/* The last rows of a finished job go before the report that it is done. */
static bool must_wait(const struct rb_worker *worker, const struct rb_job_facts *facts)
{
    const struct rb_agent_job *job = worker->job;
    return worker->done && facts->state.message &&
           (job->progress_sent ||
            (job->progress_dirty && rb_publish_progress(facts, &job->progress) == RB_PUBLISH_NOW));
}

static void report(struct rb_worker *worker)
{
    struct rb_agent *agent = worker->agent;
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    const struct rb_job_facts *job = rb_facts_job(facts, worker->told.job);
    if (worker->report_sent || !job || !job->job.message || must_wait(worker, job) ||
        (worker->unheard && !worker->told.gone))
        return;
    const struct rb_fact *known = rb_facts_report(job, agent->node, worker->told.device);
    bool same = known && !strcmp(known->worker->worker, worker->told.worker);
    RB_CLEANUP(rb_freep) char *text = report_text(worker, same ? known->worker : NULL);
    if (known && !strcmp(known->text, text))
        return;
    ProtobufCMessage *message = NULL;
    struct rb_why why;
    if (rb_reflect_from_text(text, strlen(text), &rb__worker_report__descriptor, &message, &why))
        return;
    struct rb_writes writes = {0};
    rb_writes_guard(&writes, job->job.revision, "%s", job->job.key); /* not behind a deletion */
    rb_writes_put(&writes, RB_ANY_REVISION, message, "jobs/%s/workers/%s:%u", worker->told.job,
                  agent->node, worker->told.device);
    worker->report_sent = true;
    rb_store_commit(agent->daemon->store, &writes, NULL, 0, on_reported,
                    new_about(agent, worker->told.job, worker->told.worker, 0));
    rb_writes_done(&writes);
    protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- Progress -------------------------------------------------------------------------------- */

/* Samples a second over the last rows. */
static double throughput(struct rb_agent_job *job, const Rb__Row *row)
{
    if (job->n_window == RB_AGENT_WINDOW)
        memmove(&job->window[0], &job->window[1], --job->n_window * sizeof(job->window[0]));
    job->window[job->n_window].time = row->time;
    job->window[job->n_window++].samples = row->samples;
    uint64_t samples = 0, first = job->window[0].time;
    for (size_t i = 1; i < job->n_window; i++)
        samples += job->window[i].samples;
    if (row->time > first)
        return (double)samples * 1000.0 / (double)(row->time - first);
    return row->step_ms > 0 ? row->samples * 1000.0 / row->step_ms : 0;
}

/* There is no hurry, and each change is a write. */
static void take_pace(struct rb_worker *worker, const Rb__Row *row)
{
    uint64_t now = uv_now(worker->agent->daemon->loop);
    if (!row->has_microbatch_us || now < worker->pace_due)
        return;
    worker->pace_due = now + RB_AGENT_PACE_MS;
    worker->microbatch_us = row->microbatch_us;
    rb_agent_poke_in(worker->agent, RB_AGENT_PROGRESS_MS);
}

void rb_agent_take_row(struct rb_worker *worker, const Rb__Row *row, bool rank_0)
{
    struct rb_agent_job *job = worker->job;
    struct rb_why why = {0};
    bool new = false;
    struct rb_rows *rows = rb_agent_rows(job, &why);
    int err = rows ? rb_rows_add(rows, row, &new, &why) : RB_EIO;
    if (err && !job->rows_failed)
        rb_log(RB_LOG_ERROR, "job %s: %s; they wait in memory", job->id, why.text);
    else if (!err && new && job->rows_failed)
        rb_log(RB_LOG_INFO, "job %s: metrics are written again", job->id);
    if (err || new)
        job->rows_failed = err != 0;
    rb_fault("daemon.row");
    take_pace(worker, row);
    Rb__Progress *progress = &job->progress;
    if (!rank_0 || row->configuration < progress->configuration ||
        (row->configuration == progress->configuration && row->step <= progress->step))
        return;
    if (row->configuration != progress->configuration)
        job->n_window = 0; /* another set has another pace, and there may be a pause between them */
    progress->configuration = row->configuration;
    progress->step = row->step;
    progress->loss = row->loss;
    progress->samples = row->first_sample + row->samples;
    progress->time = row->time;
    progress->throughput = throughput(job, row);
    if (row->has_eval_loss) {
        progress->has_eval_loss = progress->has_eval_step = true;
        progress->eval_loss = row->eval_loss;
        progress->eval_step = row->step;
        progress->has_eval_accuracy = row->has_eval_accuracy;
        progress->eval_accuracy = row->eval_accuracy;
    }
    job->progress_dirty = true;
    rb_agent_poke_in(worker->agent, RB_AGENT_PROGRESS_MS);
}

static void on_progressed(int err, const struct rb_why *why, void *context)
{
    struct about *about = context;
    (void)why;
    struct rb_agent_job *job =
        err == RB_ECANCELED ? NULL : rb_agent_job_known(about->agent, about->job);
    if (job) {
        job->progress_sent = false;
        job->progress_dirty = job->progress_dirty || err;
        rb_agent_poke_in(about->agent, job->progress_dirty ? RB_AGENT_PROGRESS_MS : 0);
    }
    about_free(about);
}

static bool worker_done(const struct rb_agent_job *job)
{
    for (const struct rb_worker *worker = job->agent->workers; worker; worker = worker->next)
        if (worker->job == job && worker->done)
            return true;
    return false;
}

static void publish_progress(struct rb_agent_job *job, const struct rb_job_facts *facts)
{
    struct rb_agent *agent = job->agent;
    uint64_t now = uv_now(agent->daemon->loop);
    if (!job->progress_dirty || job->progress_sent)
        return;
    enum rb_publish may = rb_publish_progress(facts, &job->progress);
    if (may != RB_PUBLISH_NOW) {
        job->progress_dirty = may == RB_PUBLISH_LATER;
        if (job->progress_dirty)
            rb_agent_poke_in(agent, RB_AGENT_PROGRESS_MS);
        return;
    }
    if (now < job->progress_due && !worker_done(job)) {
        rb_agent_poke_in(agent, job->progress_due - now);
        return;
    }
    struct rb_writes writes = {0};
    rb_writes_guard(&writes, facts->state.revision, "%s", facts->state.key);
    /* What the rubatod before this one has sent may still come. */
    rb_writes_put(&writes, facts->progress.revision, &job->progress.base, "jobs/%s/progress",
                  job->id);
    job->progress_dirty = false;
    job->progress_sent = true;
    job->progress_due = now + RB_AGENT_PROGRESS_MS;
    rb_store_commit(agent->daemon->store, &writes, NULL, 0, on_progressed,
                    new_about(agent, job->id, NULL, 0));
    rb_writes_done(&writes);
}

/* ---- Checkpoints ----------------------------------------------------------------------------- */

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

static void on_registered(int err, const struct rb_why *why, void *context)
{
    struct about *about = context;
    (void)why;
    struct rb_agent_job *job =
        err == RB_ECANCELED ? NULL : rb_agent_job_known(about->agent, about->job);
    if (job && !err)
        checkpoint_drop(job, about->step);
    for (struct rb_agent_checkpoint *pending = job ? job->checkpoints : NULL; pending;
         pending = pending->next)
        pending->sent = pending->sent && pending->value.step != about->step;
    if (job)
        rb_agent_poke_in(about->agent, err ? RB_AGENT_RETRY_MS : 0);
    about_free(about);
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
    rb_store_commit(agent->daemon->store, &writes, NULL, 0, on_registered,
                    new_about(agent, job->id, NULL, pending->value.step));
    rb_writes_done(&writes);
}

static void publish_checkpoints(struct rb_agent_job *job, const struct rb_job_facts *facts)
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

/* ---- The final state ------------------------------------------------------------------------- */

/* Without it the job would never end, and its result be lost with its workers: a disk that was full
 * may have room again. */
static void save_final_again(struct rb_worker *worker)
{
    uint64_t now = uv_now(worker->agent->daemon->loop);
    if (!worker->final_due || worker->told.gone || worker->told.left)
        return;
    if (now < worker->final_due) {
        rb_agent_poke_in(worker->agent, worker->final_due - now);
        return;
    }
    RB_CLEANUP(rb_freep) char *final = rb_format("%s/final", worker->job->folder);
    Rb__Save order = RB__SAVE__INIT;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    order.folder = final;
    message.save = &order;
    worker->final_due = 0;
    rb_worker_send(worker, &message);
}

/* ---- Events ---------------------------------------------------------------------------------- */

static void on_told(int err, const struct rb_why *why, void *context)
{
    (void)err; /* it is in the log, too */
    (void)why;
    (void)context;
}

void rb_agent_tell(struct rb_worker *worker, const char *kind, const char *text)
{
    struct rb_agent *agent = worker->agent;
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    const struct rb_job_facts *job = rb_facts_job(facts, worker->told.job);
    Rb__Event event = RB__EVENT__INIT;
    struct rb_writes writes = {0};
    if (!job || !job->job.message)
        return;
    event.time = rb_clock_unix_ms();
    event.job = job->job.job->name;
    event.job_id = job->job.job->id;
    event.node = (char *)agent->node;
    event.kind = (char *)kind;
    event.text = (char *)text;
    rb_writes_put(&writes, RB_ANY_REVISION, &event.base, "events/%013" PRIu64 "-%s", event.time,
                  worker->told.worker);
    rb_store_commit(agent->daemon->store, &writes, NULL, 0, on_told, NULL);
    rb_writes_done(&writes);
}

/* ---- All ------------------------------------------------------------------------------------- */

void rb_agent_report_all(struct rb_agent *agent)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    for (struct rb_agent_job *job = agent->jobs; job; job = job->next) {
        const struct rb_job_facts *found = rb_facts_job(facts, job->id);
        if (found && found->job.message && found->state.message) {
            publish_progress(job, found);
            publish_checkpoints(job, found);
        } else {
            job->progress_dirty = false;
        }
    }
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next) {
        save_final_again(worker);
        report(worker);
    }
}
