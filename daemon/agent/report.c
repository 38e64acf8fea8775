/* SPDX-License-Identifier: Apache-2.0 */
/* What goes to facts: a report a worker, events, and of rank 0 progress and checkpoints, which are
 * published only while the job's active configuration is the one that they come from. */
#include "daemon/agent/report.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/worker.h"
#include "daemon/facts/publish.h"
#include "proto/reflect.h"

#include <string.h>

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

/* May the report name the state behind the last step?  With it the job is over, so progress must be
 * in facts first, or the last loss would not be known.  But facts take progress only once they know
 * that the configuration trains, which they learn from this report: until then the report is silent
 * about that state. */
static bool is_over(const struct rb_worker *worker, const struct rb_job_facts *facts)
{
    const struct rb_agent_job *job = worker->job;

    return worker->told.gone || !worker->done || !job->progress_dirty || !facts->state.message ||
           rb_publish_progress(facts, &job->progress) != RB_PUBLISH_LATER;
}

/* known: what facts have of it, or NULL. */
static char *report_text(const struct rb_worker *worker, const struct rb_job_facts *facts,
                         const Rb__WorkerReport *known)
{
    Rb__WorkerReport report = RB__WORKER_REPORT__INIT;
    report.worker = (char *)worker->told.worker;
    report.state = state_of(worker);
    report.has_pid = worker->pid != 0;
    report.pid = (uint32_t)worker->pid;
    report.addresses = worker->addresses;
    report.n_addresses = worker->n_addresses;
    report.agent = (char *)worker->agent->daemon->address;
    report.has_ready = report.has_active = report.has_level = report.has_spawned_for = true;
    report.ready = worker->told.ready;
    report.active = worker->told.active;
    report.level = worker->level;
    report.spawned_for = worker->told.spawned_for;
    report.has_unready = worker->told.unready != 0;
    report.unready = worker->told.unready;
    report.reason = worker->reason;
    report.has_lost = report.lost = worker->lost;
    report.has_unreadable = report.unreadable = worker->unreadable;
    report.has_unsaved = report.unsaved = worker->save_failed;
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
    report.saved = is_over(worker, facts) ? worker->saved : NULL;
    return rb_reflect_to_text(&report.base);
}

static void on_reported(int err, const struct rb_agent_about *about)
{
    for (struct rb_worker *worker = about->agent->workers; worker; worker = worker->next)
        if (!strcmp(worker->told.worker, about->worker))
            worker->report_sent = false;
    if (!err)
        rb_fault("daemon.reported");
    if (err)
        rb_agent_poke_in(about->agent, RB_AGENT_RETRY_MS);
    else
        rb_agent_poke(about->agent);
}

/* The last rows go first: a reader that learns from the report that the job has ended, or stands
 * still, then knows of its last step, too. */
static bool must_wait(const struct rb_worker *worker, const struct rb_job_facts *facts)
{
    const struct rb_agent_job *job = worker->job;
    return rb_agent_rows_end(worker) && facts->state.message &&
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
    RB_CLEANUP(rb_freep) char *text = report_text(worker, job, same ? known->worker : NULL);
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
    rb_agent_commit(&writes,
                    &(struct rb_agent_about){
                        .agent = agent, .job = worker->told.job, .worker = worker->told.worker},
                    on_reported);
    rb_writes_done(&writes);
    protobuf_c_message_free_unpacked(message, NULL);
}

/* ---- The final state ------------------------------------------------------------------------- */

/* Without the final state the job would never end, and its result would be lost with its workers.
 * A disk that was full may have room again. */
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
    rb_writes_event(&writes, RB_ANY_REVISION, &event, "%06u-%s", agent->events++,
                    worker->told.worker);
    rb_store_commit(agent->daemon->store, &writes, NULL, NULL, NULL); /* the log has it, too */
    rb_writes_done(&writes);
}

/* ---- All ------------------------------------------------------------------------------------- */

void rb_agent_report_all(struct rb_agent *agent)
{
    const struct rb_facts *facts = rb_store_facts(agent->daemon->store);
    for (struct rb_agent_job *job = agent->jobs; job; job = job->next) {
        const struct rb_job_facts *found = rb_facts_job(facts, job->id);
        if (found && found->job.message && found->state.message) {
            rb_agent_publish_progress(job, found);
            rb_agent_publish_checkpoints(job, found);
        } else {
            job->progress_dirty = false;
        }
    }
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next) {
        save_final_again(worker);
        report(worker);
    }
}
