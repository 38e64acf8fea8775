/* SPDX-License-Identifier: Apache-2.0 */
/* How far a job is: the rows of its workers, and what goes to facts of those of rank 0. */
#include "daemon/agent/report.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/rows.h"
#include "daemon/agent/worker.h"
#include "daemon/facts/publish.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PROGRESS_MS = 500, SKIP_MS = 60000, PACE_MS = 2000 };

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
    worker->pace_due = now + PACE_MS;
    worker->microbatch_us = row->microbatch_us;
    rb_agent_poke_in(worker->agent, PROGRESS_MS);
}

/* A job that skips steps goes on as if nothing had happened, so an event says so: not of each step,
 * for there may be many. */
static void tell_skipped(struct rb_worker *worker, const Rb__Row *row)
{
    struct rb_agent_job *job = worker->job;
    uint64_t now = uv_now(worker->agent->daemon->loop);
    if (!row->skipped || now < job->skip_due)
        return;
    job->skip_due = now + SKIP_MS;
    RB_CLEANUP(rb_freep)
    char *text =
        rb_format("step %" PRId64 " is skipped: %s", row->step,
                  isfinite(row->loss) ? "a gradient is not finite, or no target of it counts"
                                      : "its loss is not finite");
    rb_log(RB_LOG_WARN, "job %s: %s", job->id, text);
    rb_agent_tell(worker, "step-skipped", text);
}

static bool is_further(uint32_t configuration, int64_t step, const Rb__Progress *than)
{
    return configuration != than->configuration ? configuration > than->configuration
                                                : step > than->step;
}

/* Take all of a row but throughput.  False: the job was that far already. */
static bool go_on(Rb__Progress *progress, const Rb__Row *row)
{
    if (!is_further(row->configuration, row->step, progress))
        return false;
    progress->configuration = row->configuration;
    progress->step = row->step;
    progress->loss = row->loss;
    progress->samples = row->first_sample + row->samples;
    progress->time = row->time;
    if (row->has_eval_loss) {
        progress->has_eval_loss = progress->has_eval_step = true;
        progress->eval_loss = row->eval_loss;
        progress->eval_step = row->step;
        progress->has_eval_accuracy = row->has_eval_accuracy;
        progress->eval_accuracy = row->eval_accuracy;
    }
    return true;
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
    if (rank_0 && new)
        tell_skipped(worker, row);
    rb_fault("daemon.row");
    take_pace(worker, row);
    uint32_t before = job->progress.configuration;
    go_on(&job->heard, row);
    if (!rank_0 || !go_on(&job->progress, row))
        return;
    if (row->configuration != before)
        job->n_window = 0; /* another set has another pace, and there may be a pause between them */
    job->progress.throughput = throughput(job, row);
    job->progress_dirty = true;
    rb_agent_poke_in(worker->agent, PROGRESS_MS);
}

static void on_progressed(int err, const struct rb_agent_about *about)
{
    struct rb_agent_job *job = rb_agent_job_known(about->agent, about->job);
    if (!job)
        return;
    job->progress_sent = false;
    job->progress_dirty = job->progress_dirty || err;
    rb_agent_poke_in(about->agent, job->progress_dirty ? PROGRESS_MS : 0);
}

bool rb_agent_rows_end(const struct rb_worker *worker)
{
    const struct rb_worker *other = worker->agent->workers;
    if (worker->done || (worker->told.saving && worker->saved))
        return true;
    while (other && (other->job != worker->job || other->told.gone))
        other = other->next;
    return worker->told.gone && !other;
}

static bool all_is_said(const struct rb_agent_job *job)
{
    for (const struct rb_worker *worker = job->agent->workers; worker; worker = worker->next)
        if (worker->job == job && rb_agent_rows_end(worker))
            return true;
    return false;
}

/* Each worker tells its rows some at a time.  Where all have died, another worker may have told
 * more of them than rank 0. */
static void take_heard(struct rb_agent_job *job)
{
    const Rb__Progress *heard = &job->heard;
    if (!job->progress.configuration ||
        !is_further(heard->configuration, heard->step, &job->progress) || !all_is_said(job))
        return;
    job->heard.throughput = job->progress.throughput;
    job->progress = job->heard;
    job->progress_dirty = true;
}

/* There is no hurry while it trains: the next step is near. */
static bool is_urgent(const struct rb_agent_job *job, const Rb__JobState *state)
{
    return all_is_said(job) || !state->active || state->saver;
}

void rb_agent_publish_progress(struct rb_agent_job *job, const struct rb_job_facts *facts)
{
    struct rb_agent *agent = job->agent;
    uint64_t now = uv_now(agent->daemon->loop);
    take_heard(job);
    if (!job->progress_dirty || job->progress_sent)
        return;
    enum rb_publish may = rb_publish_progress(facts, &job->progress);
    if (may != RB_PUBLISH_NOW) {
        job->progress_dirty = may == RB_PUBLISH_LATER;
        if (job->progress_dirty)
            rb_agent_poke_in(agent, PROGRESS_MS);
        return;
    }
    if (now < job->progress_due && !is_urgent(job, facts->state.state)) {
        rb_agent_poke_in(agent, job->progress_due - now);
        return;
    }
    struct rb_writes writes = {0};
    rb_writes_guard(&writes, facts->state.revision, "%s", facts->state.key);
    /* A write of the rubatod before this one may still come. */
    rb_writes_put(&writes, facts->progress.revision, &job->progress.base, "jobs/%s/progress",
                  job->id);
    job->progress_dirty = false;
    job->progress_sent = true;
    job->progress_due = now + PROGRESS_MS;
    rb_agent_commit(&writes, &(struct rb_agent_about){.agent = agent, .job = job->id},
                    on_progressed);
    rb_writes_done(&writes);
}
