/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's life, and a round of the rules after each change. */
#include "daemon/agent/agent.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "daemon/agent/checkpoints.h"
#include "daemon/agent/deaths.h"
#include "daemon/agent/inside.h"
#include "daemon/agent/jobs.h"
#include "daemon/agent/methods.h"
#include "daemon/agent/plan.h"
#include "daemon/agent/report.h"
#include "daemon/agent/rules.h"
#include "daemon/agent/spawn.h"
#include "daemon/agent/worker.h"
#include "daemon/settings.h"
#include "daemon/silence.h"

#include <stdlib.h>
#include <string.h>

/* ---- A round --------------------------------------------------------------------------------- */

static bool has_blob(const char *digest, void *context)
{
    const struct rb_agent *agent = context;
    return rb_blobs_has(agent->daemon->blobs, digest);
}

static void ask_nodes(struct rb_agent *agent, const struct rb_agent_actions *actions,
                      struct rb_arena *arena)
{
    const char **names = RB_ARENA_NEW(arena, const char *, actions->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < actions->n; i++)
        if (actions->at[i].kind == RB_AGENT_ASK)
            names[n++] = actions->at[i].node;
    rb_silence_ask(agent->silence, names, n);
}

static void decide(struct rb_agent *agent)
{
    struct rb_arena arena = {0};
    struct rb_agent_actions actions;
    size_t n = 0, n_deaths = 0, n_silent = 0;
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
    const char *const *silent = rb_silence_names(agent->silence, &n_silent);
    struct rb_agent_view view = {
        .facts = rb_store_facts(agent->daemon->store),
        .node = agent->node,
        .workers = told,
        .n = n,
        .deaths = deaths,
        .n_deaths = n_deaths,
        .silent = silent,
        .n_silent = n_silent,
        .now_ms = uv_now(agent->daemon->loop),
        .unix_ms = rb_clock_unix_ms(),
        .has_blob = has_blob,
        .context = agent,
    };
    rb_agent_decide(&view, &arena, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct rb_agent_action *action = &actions.at[i];
        bool of_worker = rb_agent_action_of_worker(action->kind);
        rb_agent_act(agent, action, of_worker ? workers[action->worker] : NULL, &arena);
    }
    ask_nodes(agent, &actions, &arena);
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
    rb_agent_jobs_follow(agent);
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

static void on_news(void *context)
{
    rb_agent_poke(context);
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_agent *rb_agent_new(struct rb_daemon *daemon)
{
    struct rb_agent *agent = rb_alloc(sizeof(*agent));
    agent->daemon = daemon;
    agent->node = daemon->settings->node;
    agent->run_folder = rb_format("%s/run", daemon->settings->state_dir);
    agent->jobs_folder = rb_format("%s/jobs", daemon->settings->state_dir);
    agent->worker_program = rb_program_beside("rubato-worker");
    agent->host = rb_settings_host(daemon->settings);
    agent->fence = 1;
    agent->next_save = rb_clock_unix_ms() << 20; /* no number that a rubatod before had */
    uv_timer_init(daemon->loop, &agent->soon);
    uv_timer_init(daemon->loop, &agent->clock);
    uv_timer_init(daemon->loop, &agent->watch);
    agent->soon.data = agent->clock.data = agent->watch.data = agent;
    agent->silence = rb_silence_new(daemon, RB_SILENCE_STOPPED, on_news, agent);
    rb_server_add(daemon->server, rb_agent_methods, agent);
    rb_server_add(daemon->server, rb_agent_death_methods, agent);
    return agent;
}

int rb_agent_start(struct rb_agent *agent, struct rb_why *why)
{
    int err = rb_file_make_folder(agent->run_folder, RB_FOLDER_OWN, why);
    if (!err)
        err = rb_file_make_folder(agent->jobs_folder, RB_FOLDER_OWN, why);
    if (!err)
        err = rb_agent_adopt(agent, why);
    if (err)
        return err;
    agent->started = true;
    rb_store_watch(agent->daemon->store, on_news, agent);
    rb_agent_poke(agent);
    return RB_OK;
}

void rb_agent_stop(struct rb_agent *agent)
{
    agent->started = false;
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

size_t rb_agent_kill_all(struct rb_agent *agent)
{
    size_t saving = 0;
    for (struct rb_worker *worker = agent->workers; worker; worker = worker->next) {
        saving += worker->told.saving && !worker->told.gone;
        if (!worker->told.saving)
            rb_process_kill(worker->process);
    }
    return saving;
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
    rb_agent_jobs_free(agent);
    rb_agent_deaths_free(agent);
    rb_silence_free(agent->silence);
    rb_agent_checks_drop(agent);
    rb_agent_copies_drop(agent);
    agent->started = false;
    agent->closing = 3;
    uv_close((uv_handle_t *)&agent->soon, on_closed);
    uv_close((uv_handle_t *)&agent->clock, on_closed);
    uv_close((uv_handle_t *)&agent->watch, on_closed);
}
