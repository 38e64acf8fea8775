/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of this node: its process, its link, and what it is told. */
#include "daemon/agent/worker.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/devices.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/methods.h"
#include "daemon/agent/rows.h"
#include "daemon/agent/spawn.h"
#include "daemon/agent/worker_link.h"
#include "daemon/facts/contingency.h"
#include "proto/spec_paths.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    ROWS_AGAIN = 5000, /* rows told again, and recognized; a fall back may have changed some */
    ROWS_WAIT_MS = 50, /* no reader of rows sees that; short steps feel each interruption */
    LOGS_KEPT = 64,    /* newest logs of a job, beside as many as there are workers that live */
};

/* ---- What it is told ------------------------------------------------------------------------- */

void rb_worker_send(struct rb_worker *worker, Rb__ToWorker *message)
{
    message->fence = worker->agent->fence;
    if (worker->link)
        rb_worker_link_send(worker->link, message);
}

static void forget_without(struct rb_worker *worker)
{
    for (size_t i = 0; i < worker->n_without; i++)
        free(worker->without[i]);
    free(worker->without);
    worker->without = NULL;
    worker->n_without = 0;
    worker->foreseen = 0;
}

/* Two agents that know of different deaths may make different sets under one number: reports say
 * which set it is. */
void rb_worker_goes_without(struct rb_worker *worker, const struct rb_job_facts *job,
                            const Rb__Configuration *left)
{
    const Rb__Configuration *base = rb_contingency_base(job, left);
    struct rb_arena arena = {0};
    const char **without;
    forget_without(worker);
    if (!base)
        return;
    worker->foreseen = left->number;
    worker->n_without = rb_contingency_without(base, left, &arena, &without);
    worker->without = rb_alloc((worker->n_without + 1) * sizeof(*worker->without));
    for (size_t i = 0; i < worker->n_without; i++)
        worker->without[i] = rb_string(without[i]);
    rb_arena_done(&arena);
}

static const Rb__Spec *spec_of(const struct rb_worker *worker)
{
    const struct rb_facts *facts = rb_store_facts(worker->agent->daemon->store);
    const struct rb_job_facts *job = rb_facts_job(facts, worker->told.job);
    return job && job->job.message ? job->job.job->spec : NULL;
}

int64_t rb_worker_rows_known(const struct rb_worker *worker)
{
    struct rb_why why;
    struct rb_rows *rows = rb_agent_rows(worker->job, &why);
    int64_t known = rows ? rb_rows_unbroken(rows) - ROWS_AGAIN : 0;
    return known > 0 ? known : 0;
}

static void greet(pid_t pid, void *context)
{
    struct rb_worker *worker = context;
    RB_CLEANUP(rb_freep) char *final = rb_format("%s/final", worker->job->folder);
    Rb__Settings settings = RB__SETTINGS__INIT;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    const Rb__Spec *spec = spec_of(worker);
    if (pid && !worker->pid)
        worker->pid = pid;
    settings.final_folder = final;
    if (spec && spec->checkpoint) {
        settings.checkpoint_path = (char *)rb_spec_checkpoints(spec);
        free(worker->checkpoints);
        worker->checkpoints = settings.checkpoint_path ? rb_string(settings.checkpoint_path) : NULL;
        settings.has_checkpoint_every = settings.has_checkpoint_keep = true;
        settings.checkpoint_every = spec->checkpoint->every;
        settings.checkpoint_keep = spec->checkpoint->keep;
    }
    settings.has_rows_after = true;
    settings.rows_after = rb_worker_rows_known(worker);
    settings.has_rows_wait_ms = true;
    settings.rows_wait_ms = ROWS_WAIT_MS;
    message.settings = &settings;
    rb_worker_send(worker, &message);
}

static void on_link_lost(void *context)
{
    struct rb_worker *worker = context;
    worker->told.connected = false;
    rb_agent_saves_lost(worker); /* orders or answers may be lost with it */
    worker->told.waited = uv_now(worker->agent->daemon->loop);
}

static void on_message(const Rb__FromWorker *message, void *context)
{
    rb_worker_hear(context, message);
}

static const struct rb_worker_link_events link_events = {
    .connected = greet,
    .message = on_message,
    .lost = on_link_lost,
};

/* ---- Its life -------------------------------------------------------------------------------- */

/* How: "status N", "signal N (NAME)", or "ended" for a process that was no child of this rubatod.
 */
static void say_end(struct rb_worker *worker, const char *how)
{
    char bus[32];

    snprintf(bus, sizeof(bus), "signal %d ", SIGBUS);
    if (!strcmp(how, "ended"))
        rb_worker_set_reason(worker, "its process ended, and its log may say why");
    else if (!strncmp(how, bus, strlen(bus)))
        rb_worker_set_reason(worker,
                             "its process ended: %s: a file that it reads was made shorter, or its "
                             "disk has failed",
                             how);
    else
        rb_worker_set_reason(worker, "its process ended: %s%s", how,
                             strncmp(how, "status", 6) ? "" : ", and its log says why");
}

static void on_ended(const char *how, void *context)
{
    struct rb_worker *worker = context;
    const struct rb_job_facts *facts =
        rb_facts_job(rb_store_facts(worker->agent->daemon->store), worker->told.job);
    rb_fault("daemon.reaped");
    rb_log(worker->told.left ? RB_LOG_INFO : RB_LOG_WARN, "job %s: worker %s on device %u: %s",
           worker->told.job, worker->told.worker, worker->told.device, how);
    worker->told.gone = true;
    worker->told.connected = false;
    worker->ended = rb_clock_unix_ms();
    if (!worker->failed && !worker->told.left)
        say_end(worker, how);
    rb_worker_link_close(worker->link);
    worker->link = NULL;
    rb_agent_saves_lost(worker);
    if (worker->told.saving && !worker->saved && facts)
        worker->saved =
            rb_agent_find_parked(worker->agent, facts, worker->told.worker, worker->told.active);
    if (strcmp(how, "status 0") != 0)
        rb_agent_remove_half_saved(worker);
    rb_agent_poke(worker->agent);
}

struct rb_worker *rb_worker_new(struct rb_agent *agent, const char *job, const char *name,
                                uint32_t device, uint32_t spawned_for)
{
    struct rb_worker *worker = rb_alloc(sizeof(*worker));
    worker->agent = agent;
    worker->job = rb_agent_job(agent, job);
    worker->level = worker->first_step = worker->newest = -1;
    worker->told = (struct rb_agent_worker){
        .job = rb_string(job),
        .worker = rb_string(name),
        .device = device,
        .spawned_for = spawned_for,
        .waited = uv_now(agent->daemon->loop),
    };
    rb_agent_watch(agent);
    struct rb_worker **last = &agent->workers;
    while (*last)
        last = &(*last)->next;
    *last = worker;
    return worker;
}

void rb_worker_free(struct rb_worker *worker)
{
    struct rb_worker **at = &worker->agent->workers;
    while (*at != worker)
        at = &(*at)->next;
    *at = worker->next;
    rb_agent_saves_lost(worker);
    rb_worker_link_close(worker->link);
    rb_process_release(worker->process);
    if (worker->told.gone) {
        static const char *const ends[] = {"sock", "peer"};
        for (size_t i = 0; i < RB_COUNT(ends); i++) {
            RB_CLEANUP(rb_freep)
            char *path =
                rb_format("%s/%s.%s", worker->agent->run_folder, worker->told.worker, ends[i]);
            unlink(path);
        }
    }
    rb_worker_forget_said(worker);
    forget_without(worker);
    free(worker->checkpoints);
    free((char *)worker->told.job);
    free((char *)worker->told.worker);
    free(worker);
}

static void link_up(struct rb_worker *worker)
{
    RB_CLEANUP(rb_freep)
    char *path = rb_format("%s/%s.sock", worker->agent->run_folder, worker->told.worker);
    worker->link = rb_worker_link_new(worker->agent->daemon->loop, path, &link_events, worker);
}

int rb_worker_spawn(struct rb_worker *worker, struct rb_why *why)
{
    struct rb_agent *agent = worker->agent;
    RB_CLEANUP(rb_freep) char *logs = rb_format("%s/logs", worker->job->folder);
    RB_CLEANUP(rb_freep) char *log = rb_format("%s/%s.log", logs, worker->told.worker);
    struct rb_why untidy = {0};
    int err = rb_file_make_folder(logs, RB_FOLDER_OWN, why);
    if (err)
        return err;
    if (rb_file_keep_newest(logs, LOGS_KEPT + rb_agent_workers(agent), &untidy))
        rb_log(RB_LOG_WARN, "job %s: old logs stay: %s", worker->told.job, untidy.text);
    const Rb__Device *device = rb_devices_find(agent->daemon->devices, worker->told.device);
    if (!device)
        return rb_why_set(why, RB_ENOTFOUND, "this node has no device %u any more",
                          worker->told.device);
    struct rb_spawn spawn = {
        .program = agent->worker_program,
        .job = worker->told.job,
        .worker = worker->told.worker,
        .kind = device->kind,
        .run_folder = agent->run_folder,
        .host = agent->host,
        .log_path = log,
        .device = device->has_ordinal ? device->ordinal : device->index,
        .cpu = device->has_cpu ? (int)device->cpu : -1,
    };
    err = rb_process_spawn(agent->daemon->loop, &spawn, on_ended, worker, &worker->process, why);
    if (err)
        return err;
    worker->pid = rb_process_pid(worker->process);
    link_up(worker);
    return RB_OK;
}

int rb_worker_adopt(struct rb_worker *worker, pid_t pid, struct rb_why *why)
{
    int err =
        rb_process_adopt(worker->agent->daemon->loop, pid, on_ended, worker, &worker->process, why);
    if (err)
        return err;
    worker->pid = pid;
    worker->unheard = true;
    link_up(worker);
    return RB_OK;
}
