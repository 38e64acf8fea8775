/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator, as in daemon/coordinator.c. */
#include "sim_rubatod.h"

#include "base/hash.h"
#include "daemon/decide/decide.h"

#include <inttypes.h>
#include <string.h>

enum {
    PATIENCE_MS = 8000,
    RETRY_US = 200000,
    SILENT_US = 1000000,
    BALANCE_STEPS = 4,
    BALANCE_MS = 300,
    REPLAN_MS = 300,
    PLANNED_US = 1500000
};

static void decide(struct sim_rubatod *rubatod);

static void on_decide(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)sim;
    (void)what;
    if (rubatod->alive && stamp == rubatod->decides)
        decide(rubatod);
}

static void decide_in(struct sim_rubatod *rubatod, uint64_t us)
{
    sim_in(rubatod->sim, us, on_decide, rubatod, ++rubatod->decides, NULL);
}

void sim_coordinator_poke(struct sim_rubatod *rubatod)
{
    if (rubatod->fence && !rubatod->committing)
        decide_in(rubatod, 0);
}

static void on_decided(struct sim *sim, int err, void *who, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)sim;
    (void)what;
    rubatod->committing = false;
    if (rubatod->fence)
        decide_in(rubatod, err ? RETRY_US : 0);
}

static void tell_writes(struct sim_rubatod *rubatod, const struct rb_writes *writes)
{
    for (size_t i = 0; rubatod->sim->traces && i < writes->n; i++)
        if (writes->at[i].kind != RB_WRITE_GUARD)
            sim_say(rubatod->sim, rubatod->node->name, "decides %s = %s", writes->at[i].key,
                    writes->at[i].value ? writes->at[i].value : "-");
}

/* A broken coordinator: takes a lost lease for a death. */
static void bury_the_absent(struct sim_rubatod *rubatod)
{
    const struct rb_facts *facts = sim_client_facts(rubatod->client);
    struct rb_writes writes = {0};

    for (size_t j = 0; j < facts->n_jobs; j++)
        for (size_t w = 0; w < facts->jobs[j].workers.n; w++) {
            const struct rb_fact *report = &facts->jobs[j].workers.at[w];
            char node[2] = {report->name[0], 0};
            Rb__WorkerReport dead = *report->worker;

            if (rb_fact_find(&facts->nodes, node) || dead.state == RB__WORKER_REPORT__STATE__DEAD)
                continue;
            dead.state = RB__WORKER_REPORT__STATE__DEAD;
            rb_writes_put(&writes, report->revision, &dead.base, "%s", report->key);
        }
    if (writes.n)
        sim_client_commit(rubatod->client, &writes, NULL, NULL, NULL);
}

/* In daemon/planner.c's place: what this planner knows changes now and then, until the story ends,
 * and so does its answer; and at times it has no answer. */
static bool choose(void *context, const struct rb_facts *facts, const struct rb_job_facts *job,
                   const Rb__Configuration *configuration, const Rb__Configuration *running,
                   struct rb_arena *arena, struct rb_decide_plan *ret)
{
    const struct sim *sim = context;
    uint64_t said[] = {sim->seed, sim->quiet ? 0 : 1 + sim->now / PLANNED_US,
                       configuration->n_members, (uint64_t)job->id[1]};
    uint64_t chance = rb_hash64(said, sizeof said);

    (void)facts;
    (void)running;
    (void)arena;
    *ret = (struct rb_decide_plan){.replicas = chance & 1 ? 2 : 0, .seconds = 1, .why = "so it is"};
    return (chance >> 1 & 7) != 0;
}

static bool suspects(const struct rb_facts *facts)
{
    for (size_t j = 0; j < facts->n_jobs; j++)
        if (facts->jobs[j].state.message && facts->jobs[j].state.state->suspected)
            return true;
    return false;
}

/* Does an answer come from that node?  It may also take too long. */
static bool answers(struct sim_rubatod *rubatod, const struct sim_node *node)
{
    struct sim *sim = rubatod->sim;
    size_t a = (size_t)(rubatod->node - sim->nodes), b = (size_t)(node - sim->nodes);

    return !node->down && node->rubatod && !sim->apart[a][b] && !sim->apart[b][a] &&
           (sim->quiet || sim_chance(sim, 3));
}

bool sim_silent(struct sim_rubatod *rubatod, struct sim_silence *silence, size_t node, bool asks,
                uint64_t *wake_us)
{
    struct sim *sim = rubatod->sim;
    uint64_t *since = &silence->since[node];

    if (!asks || &sim->nodes[node] == rubatod->node || answers(rubatod, &sim->nodes[node])) {
        *since = 0;
        return false;
    }
    if (!*since)
        *since = sim->now;
    if (sim->now - *since >= SILENT_US)
        return true;
    if (*wake_us > sim->now + SILENT_US)
        *wake_us = sim->now + SILENT_US;
    return false;
}

/* Returns how many are silent; *wake: when there may be more. */
static size_t find_silent(struct sim_rubatod *rubatod, const char **silent, uint64_t *wake)
{
    struct sim *sim = rubatod->sim;
    bool asks = suspects(sim_client_facts(rubatod->client));
    uint64_t wake_us = UINT64_MAX;
    size_t n = 0;

    for (size_t i = 0; i < sim->n_nodes; i++)
        if (sim_silent(rubatod, &rubatod->silence, i, asks, &wake_us))
            silent[n++] = sim->nodes[i].name;
    if (wake_us != UINT64_MAX)
        *wake = sim_ms(sim) + (wake_us - sim->now) / 1000;
    return n;
}

static void decide(struct sim_rubatod *rubatod)
{
    struct sim *sim = rubatod->sim;
    const struct rb_facts *facts;
    struct rb_fence fence = {.key = "leader"};
    struct rb_writes writes = {0};
    struct rb_why why = {{0}};
    uint64_t now = sim_ms(sim), wake = UINT64_MAX;
    uint64_t asked = UINT64_MAX; /* of the silent */
    const char *silent[SIM_NODES];
    struct rb_decide_options options = {
        .node = rubatod->node->name,
        .since_ms = rubatod->since_ms,
        .patience_ms = PATIENCE_MS,
        .silent = silent,
        .balance_steps = BALANCE_STEPS,
        .balance_ms = BALANCE_MS,
        .replan_ms = REPLAN_MS,
        .planner = {choose, sim},
    };

    if (!rubatod->fence || rubatod->committing || !rubatod->client->connected)
        return;
    if (sim->broken == SIM_NO_LEASE)
        bury_the_absent(rubatod);
    options.n_silent = find_silent(rubatod, silent, &asked);
    options.random = sim_chance(sim, UINT64_MAX);
    facts = sim_client_facts(rubatod->client);
    if (rb_decide(facts, now, &options, &writes, &wake, &why))
        sim_fail(sim, "%s cannot decide: %s", rubatod->node->name, why.text);
    wake = asked < wake ? asked : wake;
    if (writes.n) {
        tell_writes(rubatod, &writes);
        rubatod->committing = true;
        fence.created = rubatod->fence;
        fence.revision = facts->leader.revision;
        sim_client_commit(rubatod->client, &writes, &fence, on_decided, NULL);
    } else if (wake != UINT64_MAX) {
        decide_in(rubatod, wake > now ? (wake - now) * 1000 : 1000);
    }
    rb_writes_done(&writes);
}

void sim_coordinator_lead(struct sim_rubatod *rubatod, int64_t fence)
{
    if (fence && !rubatod->fence)
        rubatod->since_ms = sim_ms(rubatod->sim);
    rubatod->fence = fence;
    sim_say(rubatod->sim, rubatod->node->name,
            fence ? "coordinates (fence %" PRId64 ")" : "does not coordinate any more", fence);
    if (fence)
        sim_coordinator_poke(rubatod);
    else
        rubatod->decides++;
}
