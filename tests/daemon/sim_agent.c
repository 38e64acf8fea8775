/* SPDX-License-Identifier: Apache-2.0 */
/* What carries out an agent's decisions, as in daemon/agent/agent.c, act.c and configure.c. */
#include "sim_rubatod.h"

#include "base/hash.h"
#include "daemon/facts/fit.h"
#include "daemon/facts/holding.h"
#include "daemon/facts/shares.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_US = 500000, ASK_US = 200000 };

/* ---- Actions ----------------------------------------------------------------------------------*/

static void spawn(struct sim_rubatod *rubatod, const struct rb_agent_action *action)
{
    struct sim *sim = rubatod->sim;
    char name[16];

    for (struct sim_own *own = rubatod->own, *next; own; own = next) {
        next = own->next;
        if (own->told.gone && own->told.device == action->device &&
            !strcmp(own->told.job, action->job->id))
            sim_own_drop(rubatod, own);
    }
    snprintf(name, sizeof name, "w%zu", sim->n_processes + 1);
    sim_say(sim, rubatod->node->name, "spawns %s for configuration %u of %s on device %u", name,
            action->configuration->number, action->job->id, action->device);
    sim_own_take_on(rubatod,
                    sim_process_spawn(sim, rubatod->node, sim_job(sim, action->job->id), name,
                                      action->device, action->configuration->number),
                    action->configuration->number);
}

static uint64_t digest_of(const struct sim_conf *conf, uint32_t microbatches, bool recomputes)
{
    uint64_t digest = conf->number + ((uint64_t)recomputes << 32);

    for (uint32_t r = 0; r < conf->size; r++)
        digest =
            rb_hash_mix(digest ^ rb_hash64(conf->members[r]->name, sizeof conf->members[r]->name));
    for (uint32_t m = 0; m < microbatches; m++)
        digest = rb_hash_mix(digest + (uint64_t)conf->owners[m] + 1);
    return digest;
}

/* daemon/agent/configure.c. */
static struct sim_conf *plan(struct sim_rubatod *rubatod, const struct rb_agent_action *action)
{
    struct sim *sim = rubatod->sim;
    const Rb__Configuration *from = action->configuration;
    struct sim_job *job = sim_job(sim, action->job->id);
    struct sim_conf *conf = sim_new(sim, sizeof *conf);
    Rb__Configuration even = *from;
    struct rb_arena arena = {0};
    struct rb_replicas how;
    struct rb_why why = {{0}};
    int32_t *owners;

    conf->number = from->number;
    conf->rank = (uint32_t)action->rank;
    conf->size = (uint32_t)from->n_members;
    conf->recovers = !strcmp(from->cause, "crash");
    conf->stands = !strcmp(from->cause, "park");
    conf->restores = from->members[action->rank]->restores;
    if (conf->restores && from->restore)
        snprintf(conf->restore, sizeof conf->restore, "%s", from->restore->path);
    for (uint32_t r = 0; r < conf->size; r++) {
        const struct rb_fact *report = rb_facts_member(action->job, from, r);

        if (!report)
            return NULL;
        conf->members[r] = sim_process_named(sim, report->worker->worker);
    }
    if (rb_shares_of(&even, job->microbatches, &arena, &owners, &why))
        sim_fail(sim, "configuration %u of %s: %s", conf->number, job->id, why.text);
    else if (sim->broken == SIM_NO_RUNS)
        for (uint32_t m = 0; m < job->microbatches; m++)
            conf->owners[m] = (int32_t)(m % conf->size);
    else
        memcpy(conf->owners, owners, job->microbatches * sizeof *owners);
    if (rb_fit_recomputes(action->job->job.job, from) && !from->recomputes)
        sim_fail(sim, "configuration %u of %s keeps more than it has memory for", conf->number,
                 job->id);
    how = rb_holding_of(action->job->job.job, from, &arena);
    sim_conf_place(sim, job, conf, &how);
    rb_arena_done(&arena);
    conf->digest = digest_of(conf, job->microbatches, from->recomputes);
    return conf;
}

static void send_order(struct sim_rubatod *rubatod, struct sim_own *own, struct sim_order *order)
{
    order->fence = rubatod->orders_fence;
    if (own->process->agent == rubatod->stamp)
        sim_order(own->process, order);
}

static void configure(struct sim_rubatod *rubatod, const struct rb_agent_action *action,
                      struct sim_own *own)
{
    struct sim_order order = {.kind = SIM_CONFIGURE, .conf = plan(rubatod, action)};

    if (!order.conf)
        return;
    own->told.configured = action->configuration->number;
    send_order(rubatod, own, &order);
    if (!action->foreseen)
        return;
    order = (struct sim_order){
        .kind = SIM_GO, .number = action->configuration->number, .foreseen = true};
    own->told.went = order.number;
    sim_goes_without(own, action->job, action->configuration);
    rubatod->sim->foreseen++;
    sim_say(rubatod->sim, rubatod->node->name, "has foreseen %u of %s for %s", order.number,
            action->job->id, own->process->name);
    send_order(rubatod, own, &order);
}

static void freeze(struct sim_rubatod *rubatod, const struct rb_agent_action *action,
                   struct sim_own *own)
{
    struct sim_order order = {.kind = SIM_FREEZE, .level = own->newest};

    sim_say(rubatod->sim, rubatod->node->name, "tells %s to freeze: %s does not answer",
            own->process->name, action->node);
    own->told.stepped = own->told.saving ? 0 : rubatod->sim->now / 1000 + 1;
    send_order(rubatod, own, &order);
}

static void tell(struct sim_rubatod *rubatod, const struct rb_agent_action *action,
                 struct sim_own *own)
{
    struct sim_order order = {.number = action->number};

    switch (action->kind) {
    case RB_AGENT_GO:
        order.kind = SIM_GO;
        own->told.went = action->number;
        break;
    case RB_AGENT_ABANDON:
        order.kind = SIM_ABANDON;
        own->told.abandoned = action->number;
        if (own->told.ready == action->number)
            own->told.ready = own->told.active;
        break;
    case RB_AGENT_STAY:
        order.kind = SIM_STAY;
        own->told.left = 0;
        own->told.saving = own->unsaved = false;
        own->reason = NULL;
        break;
    default:
        order.kind = action->kind == RB_AGENT_LEAVE ? SIM_LEAVE : SIM_LEAVE_SAVING;
        own->told.left = rubatod->sim->now / 1000 + 1;
        own->told.saving = action->kind == RB_AGENT_LEAVE_SAVING;
        if (own->told.saving) {
            own->unsaved = false;
            own->reason = NULL;
        }
    }
    sim_say(rubatod->sim, rubatod->node->name, "tells %s %s %u", own->process->name,
            order.kind == SIM_GO        ? "to go to"
            : order.kind == SIM_ABANDON ? "to abandon"
            : order.kind == SIM_STAY    ? "to stay"
                                        : "to leave",
            action->number);
    send_order(rubatod, own, &order);
}

static void on_fetched(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)what;
    rubatod->fetching[stamp] = false;
    if (!rubatod->alive)
        return;
    if (sim->quiet || sim_chance(sim, 10))
        rubatod->node->blobs[stamp] = true;
    sim_agent_poke(rubatod);
}

static void fetch(struct sim_rubatod *rubatod, const struct rb_agent_action *action)
{
    size_t job = (size_t)(sim_job(rubatod->sim, action->job->id) - rubatod->sim->jobs);

    if (rubatod->fetching[job])
        return;
    rubatod->fetching[job] = true;
    sim_in(rubatod->sim, sim_between(rubatod->sim, 2000, 100000), on_fetched, rubatod, job, NULL);
}

static void kill_it(struct sim_rubatod *rubatod, const struct rb_agent_action *action,
                    struct sim_own *own)
{
    if (rubatod->sim->broken == SIM_NO_KILL && action->text)
        return;
    if (!own->told.left) {
        own->told.left = rubatod->sim->now / 1000 + 1;
        if (action->text)
            own->reason = rb_arena_string(&rubatod->sim->arena, action->text);
    }
    sim_process_kill(own->process, true, action->text ? action->text : "did not leave");
}

static void on_written(struct sim *sim, int err, void *who, void *what)
{
    (void)sim;
    (void)what;
    if (err)
        sim_agent_poke_in(who, RETRY_US);
}

static void settle_report(struct sim_rubatod *rubatod, const struct rb_agent_action *action)
{
    struct rb_writes writes = {0};

    if (action->kind == RB_AGENT_REPORT_DEAD) {
        Rb__WorkerReport dead = *action->report->worker;

        dead.state = RB__WORKER_REPORT__STATE__DEAD;
        if (!dead.reason)
            dead.reason = (char *)"its process ended while rubatod was away";
        rb_writes_put(&writes, action->report->revision, &dead.base, "%s", action->report->key);
    } else {
        rb_writes_delete(&writes, action->report->revision, "%s", action->report->key);
    }
    sim_client_commit(rubatod->client, &writes, NULL, on_written, NULL);
}

static void forget(struct sim_rubatod *rubatod, const struct rb_agent_action *action,
                   struct sim_own *own)
{
    const struct rb_fact *report =
        action->job ? rb_facts_report(action->job, rubatod->node->name, own->told.device) : NULL;
    struct rb_writes writes = {0};

    if (report && !strcmp(report->worker->worker, own->told.worker)) {
        rb_writes_delete(&writes, report->revision, "%s", report->key);
        sim_client_commit(rubatod->client, &writes, NULL, on_written, NULL);
    }
    sim_own_drop(rubatod, own);
}

static void act(struct sim_rubatod *rubatod, const struct rb_agent_action *action,
                struct sim_own *own)
{
    switch (action->kind) {
    case RB_AGENT_SPAWN:
        spawn(rubatod, action);
        break;
    case RB_AGENT_FETCH:
        fetch(rubatod, action);
        break;
    case RB_AGENT_CONFIGURE:
        configure(rubatod, action, own);
        break;
    case RB_AGENT_GO:
    case RB_AGENT_ABANDON:
    case RB_AGENT_LEAVE:
    case RB_AGENT_LEAVE_SAVING:
    case RB_AGENT_STAY:
        tell(rubatod, action, own);
        break;
    case RB_AGENT_FREEZE:
        freeze(rubatod, action, own);
        break;
    case RB_AGENT_ASK:
        rubatod->asks[sim_node(rubatod->sim, action->node) - rubatod->sim->nodes] = true;
        break;
    case RB_AGENT_KILL:
        kill_it(rubatod, action, own);
        break;
    case RB_AGENT_FORGET:
        forget(rubatod, action, own);
        break;
    case RB_AGENT_REPORT_DEAD:
    case RB_AGENT_REPORT_DELETE:
        settle_report(rubatod, action);
        break;
    }
}

/* ---- A round ----------------------------------------------------------------------------------*/

static bool has_blob(const char *digest, void *context)
{
    const struct sim_rubatod *rubatod = context;

    return rubatod->node->blobs[digest[0] - '0'];
}

/* The silent nodes among those that the last round has asked for; returns how many. */
static size_t find_silent(struct sim_rubatod *rubatod, const char **silent)
{
    struct sim *sim = rubatod->sim;
    uint64_t wake_us = UINT64_MAX;
    size_t n = 0;

    for (size_t i = 0; i < sim->n_nodes; i++) {
        if (sim_silent(rubatod, &rubatod->asked, i, rubatod->asks[i], &wake_us))
            silent[n++] = sim->nodes[i].name;
        rubatod->asks[i] = false;
    }
    return n;
}

static void look_at_asked(struct sim_rubatod *rubatod)
{
    for (size_t i = 0; i < rubatod->sim->n_nodes; i++)
        if (rubatod->asks[i])
            sim_agent_poke_in(rubatod, ASK_US);
}

static void decide(struct sim_rubatod *rubatod)
{
    struct rb_agent_worker told[64];
    struct sim_own *owns[64];
    const char *silent[SIM_NODES];
    struct rb_arena arena = {0};
    struct rb_agent_actions actions;
    struct rb_agent_view seen = {
        .facts = sim_client_facts(rubatod->client),
        .node = rubatod->node->name,
        .workers = told,
        .now_ms = rubatod->sim->now / 1000 + 1,
        .unix_ms = sim_ms(rubatod->sim),
        .has_blob = has_blob,
        .silent = silent,
        .n_silent = find_silent(rubatod, silent),
        .context = rubatod,
    };

    seen.deaths = sim_deaths_known(rubatod, &arena, &seen.n_deaths);
    for (struct sim_own *own = rubatod->own; own && seen.n < RB_COUNT(told); own = own->next) {
        owns[seen.n] = own;
        told[seen.n++] = own->told;
    }
    rb_agent_decide(&seen, &arena, &actions);
    for (size_t i = 0; i < actions.n; i++) {
        const struct rb_agent_action *action = &actions.at[i];
        bool of_worker = rb_agent_action_of_worker(action->kind);

        act(rubatod, action, of_worker ? owns[action->worker] : NULL);
    }
    look_at_asked(rubatod);
    if (actions.wake_ms != UINT64_MAX)
        sim_agent_poke_in(rubatod, (actions.wake_ms - seen.now_ms + 1) * 1000);
    rb_arena_done(&arena);
}

static void on_round(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;
    const struct rb_facts *facts;

    (void)sim;
    (void)stamp;
    (void)what;
    rubatod->poked = false;
    if (!rubatod->alive || !rubatod->started || !rubatod->client->synced)
        return;
    facts = sim_client_facts(rubatod->client);
    if (facts->leader.message && (uint64_t)facts->leader.created > rubatod->orders_fence)
        rubatod->orders_fence = (uint64_t)facts->leader.created;
    sim_deaths_tell(rubatod);
    decide(rubatod);
    sim_report_all(rubatod);
}

void sim_agent_poke(struct sim_rubatod *rubatod)
{
    if (rubatod->poked || !rubatod->alive)
        return;
    rubatod->poked = true;
    sim_in(rubatod->sim, sim_between(rubatod->sim, 1, 500), on_round, rubatod, 0, NULL);
}

static void on_clock(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)sim;
    (void)what;
    if (stamp != rubatod->clock)
        return;
    rubatod->clock_at = 0;
    sim_agent_poke(rubatod);
}

void sim_agent_poke_in(struct sim_rubatod *rubatod, uint64_t us)
{
    uint64_t at = rubatod->sim->now + us;

    if (rubatod->clock_at && rubatod->clock_at <= at)
        return;
    rubatod->clock_at = at;
    sim_in(rubatod->sim, us, on_clock, rubatod, ++rubatod->clock, NULL);
}
