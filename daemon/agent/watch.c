/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that live and do nothing.  Their peers wait in a reduction and cannot tell; the agent, on
 * the same machine, can.
 *
 *   /proc says that it is stopped      within LOOK_MS     -> killed
 *   its control thread answers no ping for 10 looks of 1 s -> killed
 *
 * Both are only observed here; rules.c decides. */
#include "daemon/agent/worker.h"

#include "base/log.h"
#include "daemon/agent/report.h"
#include "daemon/agent/spawn.h"

#include <stdio.h>

enum { LOOK_MS = 100, PING_LOOKS = 10, LATE_MS = 1000 };

static void ping(struct rb_worker *worker)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    if (!worker->told.connected || !worker->answers || worker->told.gone)
        return;
    /* Counted in looks: a rubatod that was itself stopped finds answers waiting, not silence. */
    if (worker->told.unanswered++)
        rb_agent_poke(worker->agent);
    message.has_ping = message.ping = true;
    message.has_rows_known = true;
    message.rows_known = rb_worker_rows_known(worker);
    rb_worker_send(worker, &message);
}

/* Has this rubatod been stopped?  If its workers were stopped with it, it may go on before they do.
 */
static bool is_late(struct rb_agent *agent)
{
    uint64_t now = uv_now(agent->daemon->loop), before = agent->looked;
    agent->looked = now;
    return now - before >= LATE_MS;
}

static void on_look(uv_timer_t *timer)
{
    struct rb_agent *agent = timer->data;
    bool pings = ++agent->looks % PING_LOOKS == 0, late = is_late(agent);
    if (!agent->workers)
        uv_timer_stop(timer);
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next) {
        const char *before = worker->told.stopped;
        if (worker->told.gone)
            continue;
        worker->told.stopped = late ? NULL : rb_process_stopped(worker->pid);
        if (worker->told.stopped && !before)
            rb_agent_poke(agent);
        if (pings)
            ping(worker);
    }
}

void rb_agent_watch(struct rb_agent *agent)
{
    if (uv_is_active((uv_handle_t *)&agent->watch))
        return;
    agent->looked = uv_now(agent->daemon->loop);
    uv_timer_start(&agent->watch, on_look, LOOK_MS, LOOK_MS);
}

void rb_agent_heard(struct rb_worker *worker)
{
    worker->told.unanswered = 0;
}

void rb_agent_kill(struct rb_worker *worker, const char *why)
{
    char text[256];
    if (!worker->told.left) {
        worker->told.left = uv_now(worker->agent->daemon->loop);
        snprintf(text, sizeof(text), "the worker on %s:%u (process %ld) is killed: %s",
                 worker->agent->node, worker->told.device, (long)worker->pid,
                 why ? why : "it is not needed");
        rb_log(RB_LOG_WARN, "job %s: %s", worker->told.job, text);
        if (why) {
            rb_worker_set_reason(worker, "%s", why);
            rb_agent_tell(worker, "worker-killed", text);
        }
    }
    rb_process_kill(worker->process);
}
