/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/coordinator.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/decide/decide.h"
#include "daemon/planner.h"
#include "daemon/rpc/methods.h"
#include "daemon/silence.h"

#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE_MS = 8000, /* a lease time plus reconnection */
    RETRY_MS = 200,
    BALANCE_STEPS = 32,
    BALANCE_MS = 10000,
    REPLAN_MS = 5000,
    BALANCE_GAIN_MS = 5000,
};

struct rb_coordinator {
    struct rb_daemon *daemon;
    struct rb_silence *silence;
    uv_timer_t timer;
    struct rb_fence fence; /* created 0: another leads */
    uint64_t since_ms;
    uint64_t random;
    bool committing, connected;
    const char *committed; /* the fault point behind what is being written */
};

static void decide(uv_timer_t *timer);

static void decide_soon(struct rb_coordinator *coordinator)
{
    if (coordinator->fence.created && !coordinator->committing)
        uv_timer_start(&coordinator->timer, decide, 0, 0);
}

/* The newest state of a configuration that is about to be written, as a fault point. */
static const char *fault_of(const struct rb_writes *writes)
{
    static const char *const states[][2] = {
        {"\"PREPARING\"", "daemon.preparing"},
        {"\"GO\"", "daemon.going"},
        {"\"ACTIVE\"", "daemon.active"},
    };
    for (size_t i = writes->n; i-- > 0;)
        for (size_t s = 0; s < RB_COUNT(states); s++)
            if (writes->at[i].kind == RB_WRITE_PUT &&
                strstr(writes->at[i].key, "/configurations/") &&
                strstr(writes->at[i].value, states[s][0]))
                return states[s][1];
    return NULL;
}

static void on_committed(int err, const struct rb_why *why, void *context)
{
    struct rb_coordinator *coordinator = context;
    if (err == RB_ECANCELED)
        return;
    coordinator->committing = false;
    if (!err && coordinator->committed)
        rb_fault(coordinator->committed);
    if (err && err != RB_ESTALE && err != RB_EFULL) /* the store tells once that etcd has no room */
        rb_log(RB_LOG_WARN, "a decision was not written: %s", why->text);
    if (!coordinator->fence.created)
        return;
    /* A refused decision is made anew; a little later, so that the facts that refused it are
     * here. */
    uv_timer_start(&coordinator->timer, decide, err ? RETRY_MS : 0, 0);
}

static void sleep_until(struct rb_coordinator *coordinator, uint64_t now, uint64_t wake)
{
    if (wake != UINT64_MAX)
        uv_timer_start(&coordinator->timer, decide, wake > now ? wake - now : 1, 0);
}

static void decide(uv_timer_t *timer)
{
    struct rb_coordinator *coordinator = timer->data;
    struct rb_daemon *daemon = coordinator->daemon;
    if (!coordinator->fence.created || coordinator->committing ||
        !rb_store_connected(daemon->store))
        return;
    struct rb_writes writes = {0};
    struct rb_why why = {0};
    uint64_t now = rb_clock_unix_ms(), wake = UINT64_MAX;
    size_t n_silent;
    const char *const *silent = rb_silence_names(coordinator->silence, &n_silent);
    /* splitmix: another number at each call */
    coordinator->random += 0x9e3779b97f4a7c15u;
    struct rb_decide_options options = {
        .node = daemon->settings->node,
        .since_ms = coordinator->since_ms,
        .patience_ms = PATIENCE_MS,
        .silent = silent,
        .n_silent = n_silent,
        .balance_steps = BALANCE_STEPS,
        .balance_ms = BALANCE_MS,
        .replan_ms = REPLAN_MS,
        .balance_gain_ms = BALANCE_GAIN_MS,
        .planner = rb_planner_ask(daemon->planner),
        .random = coordinator->random ^ rb_clock_ns() << 20,
    };
    const struct rb_facts *facts = rb_store_facts(daemon->store);
    int err = rb_decide(facts, now, &options, &writes, &wake, &why);
    if (err)
        rb_log(RB_LOG_ERROR, "the coordinator cannot decide: %s", why.text);
    if (!err && writes.n) {
        coordinator->committing = true;
        coordinator->committed = fault_of(&writes);
        /* Jobs take devices from each other: no decision on facts that lack the one before it. */
        struct rb_fence fence = coordinator->fence;
        fence.revision = facts->leader.revision;
        rb_store_commit(daemon->store, &writes, &fence, on_committed, coordinator);
    } else {
        sleep_until(coordinator, now, wake);
        if (!err && daemon->methods)
            rb_methods_lead(daemon->methods);
    }
    rb_writes_done(&writes);
}

/* The nodes of the members of one configuration; none where that is gone from facts. */
static size_t add_members(const struct rb_job_facts *job, uint32_t number, const char **names,
                          size_t n)
{
    const struct rb_fact *fact = number ? rb_facts_configuration(job, number) : NULL;
    for (size_t m = 0; fact && m < fact->configuration->n_members; m++)
        names[n++] = fact->configuration->members[m]->node;
    return n;
}

static bool misses_somebody(const struct rb_job_facts *job)
{
    return job->state.message && job->state.state->suspected;
}

/* Asks the nodes of jobs that miss a member. */
static void ask_nodes(struct rb_coordinator *coordinator)
{
    const struct rb_facts *facts = rb_store_facts(coordinator->daemon->store);
    size_t n_jobs = coordinator->fence.created && coordinator->connected ? facts->n_jobs : 0;
    struct rb_arena arena = {0};
    size_t n = 0, most = 0;
    const char **names;
    for (size_t j = 0; j < n_jobs; j++)
        if (misses_somebody(&facts->jobs[j]))
            most += 2 * rb_facts_count_members(&facts->jobs[j]);
    names = RB_ARENA_NEW(&arena, const char *, most + 1);
    for (size_t j = 0; j < n_jobs; j++) {
        const struct rb_job_facts *job = &facts->jobs[j];
        if (!misses_somebody(job))
            continue;
        n = add_members(job, job->state.state->active, names, n);
        n = add_members(job, job->state.state->next, names, n);
    }
    rb_silence_ask(coordinator->silence, names, n);
    rb_arena_done(&arena);
}

static void on_facts(void *context)
{
    struct rb_coordinator *coordinator = context;
    bool connected = rb_store_connected(coordinator->daemon->store);
    /* Back after an outage: other nodes need time to come back too. */
    if (connected && !coordinator->connected && coordinator->fence.created)
        coordinator->since_ms = rb_clock_unix_ms();
    coordinator->connected = connected;
    ask_nodes(coordinator);
    decide_soon(coordinator);
}

static void on_silence(void *context)
{
    decide_soon(context);
}

struct rb_coordinator *rb_coordinator_new(struct rb_daemon *daemon)
{
    struct rb_coordinator *coordinator = rb_alloc(sizeof(*coordinator));
    coordinator->daemon = daemon;
    coordinator->fence.key = "leader";
    coordinator->random = rb_clock_ns() ^ rb_clock_unix_ms() << 32;
    uv_timer_init(daemon->loop, &coordinator->timer);
    coordinator->timer.data = coordinator;
    coordinator->silence = rb_silence_new(daemon, RB_SILENCE_LOST, on_silence, coordinator);
    rb_store_watch(daemon->store, on_facts, coordinator);
    return coordinator;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void rb_coordinator_free(struct rb_coordinator *coordinator)
{
    if (!coordinator)
        return;
    rb_silence_free(coordinator->silence);
    uv_close((uv_handle_t *)&coordinator->timer, on_closed);
}

void rb_coordinator_lead(struct rb_coordinator *coordinator, int64_t fence)
{
    if (fence && !coordinator->fence.created)
        coordinator->since_ms = rb_clock_unix_ms();
    coordinator->fence.created = fence;
    ask_nodes(coordinator);
    if (fence)
        decide_soon(coordinator);
    else
        uv_timer_stop(&coordinator->timer);
}

bool rb_coordinator_leads(const struct rb_coordinator *coordinator)
{
    return coordinator->fence.created != 0;
}

const struct rb_fence *rb_coordinator_fence(const struct rb_coordinator *coordinator)
{
    return &coordinator->fence;
}
