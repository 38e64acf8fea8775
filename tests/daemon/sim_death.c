/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths that cannot wait for etcd, as in daemon/agent/deaths.c: agents tell each other.  A message
 * may be lost, late and overtaken, and is sent again. */
#include "sim_rubatod.h"

#include "daemon/facts/contingency.h"

#include <string.h>

enum { AGAIN_US = 100000, ANSWER_US = 1000000 };

static struct sim_death *know(struct sim_rubatod *rubatod, const char *job, const char *worker)
{
    struct sim_death *death = rubatod->deaths;

    while (death && (strcmp(death->job, job) != 0 || strcmp(death->worker, worker) != 0))
        death = death->next;
    if (death)
        return death;
    death = sim_new(rubatod->sim, sizeof *death);
    death->job = rb_arena_string(&rubatod->sim->arena, job);
    death->worker = rb_arena_string(&rubatod->sim->arena, worker);
    death->next = rubatod->deaths;
    rubatod->deaths = death;
    return death;
}

static const Rb__Configuration *spoken_of(const struct rb_job_facts *job, const char *worker)
{
    for (size_t i = job ? job->configurations.n : 0; i-- > 0;) {
        const Rb__Configuration *conf = job->configurations.at[i].configuration;

        for (size_t m = 0; rb_configuration_live(conf) && m < conf->n_members; m++)
            if (conf->members[m]->worker && !strcmp(conf->members[m]->worker, worker))
                return conf;
    }
    return NULL;
}

/* ---- A call -----------------------------------------------------------------------------------*/

struct call {
    struct sim_rubatod *from;
    struct sim_death *death;
    size_t node;
    uint32_t number;
    bool known; /* the answer */
};

static void on_over(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct call *call = who;

    (void)sim;
    (void)stamp;
    (void)what;
    call->death->asked[call->node] = false;
    call->death->knows[call->node] |= call->known;
    if (call->from->alive && !call->known)
        sim_agent_poke_in(call->from, AGAIN_US);
}

static bool lives(const struct sim_rubatod *rubatod, const char *worker)
{
    for (const struct sim_own *own = rubatod->own; own; own = own->next)
        if (!own->told.gone && !strcmp(own->told.worker, worker))
            return true;
    return false;
}

/* At the other node: does the agent know the configuration, and does it not own the process? */
static bool hear(struct sim_rubatod *rubatod, const struct call *call)
{
    const struct rb_job_facts *job =
        rb_facts_job(sim_client_facts(rubatod->client), call->death->job);

    if (!job || !rb_facts_configuration(job, call->number) || lives(rubatod, call->death->worker))
        return false;
    if (spoken_of(job, call->death->worker)) {
        know(rubatod, call->death->job, call->death->worker);
        sim_agent_poke(rubatod);
    }
    return true;
}

static bool is_lost(struct sim *sim, const struct call *call, bool back)
{
    size_t here = (size_t)(call->from->node - sim->nodes);
    size_t from = back ? call->node : here, to = back ? here : call->node;

    return sim->apart[from][to] || sim->nodes[to].down || !sim->nodes[to].rubatod ||
           (!sim->quiet && !sim_chance(sim, 30));
}

static void on_call(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct call *call = who;
    struct sim_rubatod *there = sim->nodes[call->node].rubatod;

    (void)stamp;
    (void)what;
    if (!is_lost(sim, call, false) && there->client->synced && there->started)
        call->known = hear(there, call);
    if (is_lost(sim, call, true)) {
        call->known = false;
        sim_in(sim, ANSWER_US, on_over, call, 0, NULL);
    } else {
        sim_in(sim, sim_between(sim, 100, 5000), on_over, call, 0, NULL);
    }
}

static void tell(struct sim_rubatod *rubatod, struct sim_death *death, const char *node,
                 uint32_t number)
{
    struct sim *sim = rubatod->sim;
    size_t n = (size_t)(sim_node(sim, node) - sim->nodes);
    struct call *call;

    if (&sim->nodes[n] == rubatod->node || death->knows[n] || death->asked[n] ||
        !rb_fact_find(&sim_client_facts(rubatod->client)->nodes, node))
        return;
    death->asked[n] = true;
    call = sim_new(sim, sizeof *call);
    *call = (struct call){rubatod, death, n, number, false};
    sim_in(sim, sim_chance(sim, 10) ? sim_between(sim, 100, 3000) : sim_between(sim, 3000, 900000),
           on_call, call, 0, NULL);
}

/* ---- All --------------------------------------------------------------------------------------*/

void sim_deaths_tell(struct sim_rubatod *rubatod)
{
    const struct rb_facts *facts = sim_client_facts(rubatod->client);

    for (struct sim_death **at = &rubatod->deaths; *at;)
        if (spoken_of(rb_facts_job(facts, (*at)->job), (*at)->worker))
            at = &(*at)->next;
        else
            *at = (*at)->next;
    for (const struct sim_own *own = rubatod->own; own; own = own->next) {
        const struct rb_job_facts *job = rb_facts_job(facts, own->told.job);
        const Rb__Configuration *conf = spoken_of(job, own->told.worker);

        if (!own->told.gone || !conf || (job->state.message && job->state.state->saver))
            continue;
        for (size_t m = 0; m < conf->n_members; m++)
            tell(rubatod, know(rubatod, own->told.job, own->told.worker), conf->members[m]->node,
                 conf->number);
    }
}

const struct rb_agent_death *sim_deaths_known(const struct sim_rubatod *rubatod,
                                              struct rb_arena *arena, size_t *ret_n)
{
    struct rb_agent_death *deaths;
    size_t n = 0;

    for (const struct sim_death *death = rubatod->deaths; death; death = death->next)
        n++;
    deaths = RB_ARENA_NEW(arena, struct rb_agent_death, n + 1);
    n = 0;
    for (const struct sim_death *death = rubatod->deaths; death; death = death->next)
        deaths[n++] = (struct rb_agent_death){death->job, death->worker};
    *ret_n = n;
    return deaths;
}

void sim_goes_without(struct sim_own *own, const struct rb_job_facts *job,
                      const Rb__Configuration *left)
{
    const Rb__Configuration *base = rb_contingency_base(job, left);
    struct rb_arena *story = &own->process->sim->arena, arena = {0};
    const char **without;

    own->n_without = own->foreseen = 0;
    if (!base)
        return;
    own->foreseen = left->number;
    own->n_without = rb_contingency_without(base, left, &arena, &without);
    own->without = RB_ARENA_NEW(story, char *, own->n_without + 1);
    for (size_t i = 0; i < own->n_without; i++)
        own->without[i] = rb_arena_string(story, without[i]);
    rb_arena_done(&arena);
}
