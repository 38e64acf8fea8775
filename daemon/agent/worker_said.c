/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker says, noted for the rules and for its report. */
#include "daemon/agent/worker.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/methods.h"
#include "daemon/agent/report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FINAL_AGAIN_MS = 1000 };

void rb_worker_set_reason(struct rb_worker *worker, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    free(worker->reason);
    worker->reason = rb_string(text);
}

static void free_addresses(struct rb_worker *worker)
{
    for (size_t i = 0; i < worker->n_addresses; i++)
        free(worker->addresses[i]);
    free(worker->addresses);
    worker->addresses = NULL;
    worker->n_addresses = 0;
}

/* The worker trains, or (false) does not any more. */
static void note_training(struct rb_worker *worker, bool trains)
{
    worker->told.stepped = trains ? uv_now(worker->agent->daemon->loop) : 0;
}

/* All steps of a lap are told at once. */
static void note_steps(struct rb_worker *worker, const Rb__FromWorker *message)
{
    double ms = 0;
    for (size_t i = 0; i < message->n_rows; i++)
        ms += message->rows[i]->step_ms;
    worker->told.step_ms = ms > 0 && ms < 1e15 ? (uint64_t)ms : 0;
    worker->newest = message->rows[message->n_rows - 1]->step;
    if (worker->told.stepped) /* else it has frozen since */
        note_training(worker, true);
}

static void take_hello(struct rb_worker *worker, const Rb__Hello *hello)
{
    struct rb_agent_worker *told = &worker->told;
    if (strcmp(hello->worker, told->worker) || strcmp(hello->job, told->job)) {
        rb_log(RB_LOG_ERROR, "worker %s says it is %s of job %s", told->worker, hello->worker,
               hello->job);
        return;
    }
    told->connected = true;
    worker->unheard = false;
    told->ready = hello->ready;
    told->active = hello->active;
    told->configured = hello->configured;
    if (hello->fence > worker->agent->fence)
        worker->agent->fence = hello->fence;
    told->went = hello->active;
    worker->level = worker->newest = hello->level;
    worker->frozen = hello->frozen;
    worker->done = hello->done;
    if (hello->saving && !told->left)
        told->left = uv_now(worker->agent->daemon->loop);
    told->saving |= hello->saving;
    worker->answers = hello->answers;
    note_training(worker, hello->active && !hello->frozen && !hello->done && !hello->saving);
    free_addresses(worker);
    worker->addresses = rb_alloc((hello->n_addresses + 1) * sizeof(*worker->addresses));
    for (size_t i = 0; i < hello->n_addresses; i++)
        worker->addresses[worker->n_addresses++] = rb_string(hello->addresses[i]);
}

static void take_flipped(struct rb_worker *worker, const Rb__Flipped *flipped)
{
    worker->told.active = flipped->number;
    worker->level = worker->first_step = flipped->level;
    if (flipped->level > worker->newest) /* else it is said again, to a rubatod that came since */
        worker->newest = flipped->level;
    worker->flipped = flipped->time;
    worker->bytes_moved = flipped->bytes_moved;
    worker->rank = flipped->rank;
    worker->has_rank = true;
    worker->frozen = flipped->stands;
    note_training(worker, !flipped->stands);
}

static void take_frozen(struct rb_worker *worker, const Rb__Frozen *frozen)
{
    worker->frozen = true;
    note_training(worker, false);
    worker->level = frozen->level;
    if (frozen->number > worker->told.active) /* not all were in it, and it cannot go on there */
        worker->told.unready = frozen->number;
    rb_worker_set_reason(worker, "%s", frozen->reason);
    rb_log(RB_LOG_WARN, "job %s: worker %s is frozen at step %" PRId64 ": %s", worker->told.job,
           worker->told.worker, frozen->level, frozen->reason);
}

static void keep_saved(struct rb_worker *worker, const Rb__Saved *saved)
{
    if (saved->error)
        return;
    if (worker->saved)
        rb__checkpoint__free_unpacked(worker->saved, NULL);
    worker->saved = rb_agent_checkpoint_of(worker->agent, saved, worker->told.active);
}

/* The state that a job ends with, from the worker that is done. */
static void take_final(struct rb_worker *worker, const Rb__Saved *saved)
{
    keep_saved(worker, saved);
    worker->final_due = 0;
    if (!saved->error) {
        worker->save_failed = false;
        return;
    }
    worker->final_due = uv_now(worker->agent->daemon->loop) + FINAL_AGAIN_MS;
    rb_worker_set_reason(worker, "the final state could not be saved: %s", saved->error);
    if (!worker->save_failed)
        rb_agent_tell(worker, "final-failed", worker->reason);
    worker->save_failed = true;
}

/* The state that a job goes on from, from the worker that saves before it leaves.  A worker that
 * could not save says why again to a later rubatod, even after it was told to stay. */
static void take_parked(struct rb_worker *worker, const Rb__Saved *saved)
{
    if (saved->error && !worker->told.saving)
        return;
    keep_saved(worker, saved);
    worker->told.left = uv_now(worker->agent->daemon->loop); /* it ends now */
    if (!saved->error)
        return;
    rb_worker_set_reason(worker, "its state could not be saved: %s", saved->error);
    if (!worker->save_failed)
        rb_agent_tell(worker, "park-failed", worker->reason);
    worker->save_failed = true;
}

/* Does `path` begin with `folder` and then `name`? */
static bool is_below(const char *path, const char *folder, const char *name)
{
    size_t size = strlen(folder);
    return !strncmp(path, folder, size) && !strncmp(path + size, name, strlen(name));
}

/* The folder is spelled as we told the worker, or with its links followed, as the thread that saves
 * spells it. */
static bool saved_below(const struct rb_worker *worker, const Rb__Saved *saved, const char *name)
{
    RB_CLEANUP(rb_freep) char *real = rb_file_real(worker->job->folder);
    return !saved->request && (is_below(saved->folder, worker->job->folder, name) ||
                               is_below(saved->folder, real, name));
}

static void take_saved(struct rb_worker *worker, const Rb__Saved *saved)
{
    /* A periodic checkpoint may be told again, or just before the state that is parked. */
    bool parked = saved_below(worker, saved, "/park");
    if (worker->done && !worker->told.saving && saved_below(worker, saved, "/final")) {
        take_final(worker, saved);
        return;
    }
    if (saved->error) {
        rb_log(RB_LOG_ERROR, "job %s: worker %s could not save: %s", worker->told.job,
               worker->told.worker, saved->error);
        if (!parked && !saved->request) /* nobody waits for the answer */
            rb_agent_tell(worker, "checkpoint-failed", saved->error);
    }
    if (saved->request)
        rb_agent_saved(worker, saved);
    else if (parked)
        take_parked(worker, saved);
    else if (!saved->error)
        rb_agent_take_checkpoint(worker, saved);
}

static void take_done(struct rb_worker *worker, const Rb__Done *done)
{
    worker->done = true;
    note_training(worker, false);
    worker->level = done->level;
    if (done->final)
        take_final(worker, done->final);
}

void rb_worker_hear(struct rb_worker *worker, const Rb__FromWorker *message)
{
    rb_agent_heard(worker);
    if (!message->n_rows && !message->pong)
        rb_fault("daemon.heard");
    if (message->hello)
        take_hello(worker, message->hello);
    if (message->ready && message->ready->number > worker->told.ready)
        worker->told.ready = message->ready->number;
    if (message->unready) {
        worker->told.unready = message->unready->number;
        rb_worker_set_reason(worker, "%s", message->unready->reason);
    }
    if (message->flipped)
        take_flipped(worker, message->flipped);
    if (message->n_rows)
        note_steps(worker, message);
    for (size_t i = 0; i < message->n_rows; i++)
        rb_agent_take_row(worker, message->rows[i], message->has_rank && message->rank == 0);
    if (message->frozen)
        take_frozen(worker, message->frozen);
    if (message->saved)
        take_saved(worker, message->saved);
    if (message->done)
        take_done(worker, message->done);
    if (message->failed) {
        worker->failed = true;
        worker->lost = message->failed->lost;
        worker->unreadable = message->failed->unreadable;
        rb_worker_set_reason(worker, "%s", message->failed->reason);
        rb_log(RB_LOG_ERROR, "job %s: worker %s failed: %s", worker->told.job, worker->told.worker,
               message->failed->reason);
    }
    if (message->hello || message->ready || message->unready || message->flipped ||
        message->frozen || message->saved || message->done || message->failed)
        rb_agent_poke(worker->agent);
}

void rb_worker_forget_said(struct rb_worker *worker)
{
    free_addresses(worker);
    if (worker->saved)
        rb__checkpoint__free_unpacked(worker->saved, NULL);
    worker->saved = NULL;
    free(worker->reason);
    worker->reason = NULL;
}
