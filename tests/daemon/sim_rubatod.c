/* SPDX-License-Identifier: Apache-2.0 */
/* A rubatod's life, as in daemon/life.c. */
#include "sim_rubatod.h"

enum { START_US = 10000000 };

/* Before anything is done in its name. */
static bool name_is_ours(const struct sim_rubatod *rubatod)
{
    const struct rb_facts *facts = sim_client_facts(rubatod->client);
    const struct rb_fact *known = rb_fact_find(&facts->nodes, rubatod->node->name);

    return known && known->lease == rubatod->node->lease_file;
}

/* Where the name is nobody's, and etcd takes no writes. */
static void on_start(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;
    const struct rb_facts *facts;

    (void)what;
    if (!rubatod->alive || rubatod->started)
        return;
    facts = sim_client_facts(rubatod->client);
    if (rubatod->client->synced && !rb_fact_find(&facts->nodes, rubatod->node->name)) {
        sim_agent_start(rubatod);
        sim_agent_poke(rubatod);
    } else {
        sim_in(sim, START_US, on_start, rubatod, stamp, NULL);
    }
}

static void on_facts(struct sim *sim, void *who)
{
    struct sim_rubatod *rubatod = who;
    bool connected = rubatod->client->connected;

    if (connected && !rubatod->connected && rubatod->fence)
        rubatod->since_ms = sim_ms(sim);
    rubatod->connected = connected;
    sim_coordinator_poke(rubatod);
    if (!rubatod->started && name_is_ours(rubatod))
        sim_agent_start(rubatod);
    sim_agent_poke(rubatod);
    sim_presence_look(rubatod);
}

void sim_rubatod_start(struct sim *sim, struct sim_node *node)
{
    struct sim_rubatod *rubatod = sim_new(sim, sizeof *rubatod);

    if (node->rubatod || node->down)
        return;
    sim_say(sim, node->name, "rubatod starts");
    *rubatod = (struct sim_rubatod){
        .sim = sim,
        .node = node,
        .stamp = ++sim->sequence,
        .alive = true,
        .orders_fence = 1,
    };
    for (size_t j = 0; j < SIM_JOBS; j++)
        rb__progress__init(&rubatod->known[j].progress);
    node->rubatod = rubatod;
    node->born = sim_ms(sim);
    rubatod->client =
        sim_client_open(sim, node, node->lease_file, on_facts, sim_presence_leased, rubatod);
    sim_in(sim, START_US, on_start, rubatod, 0, NULL);
}

void sim_rubatod_stop(struct sim_rubatod *rubatod)
{
    struct sim *sim = rubatod->sim;

    sim_say(sim, rubatod->node->name, "rubatod ends");
    rubatod->alive = false;
    rubatod->node->rubatod = NULL;
    sim_client_close(rubatod->client);
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->alive && sim->processes[i]->agent == rubatod->stamp)
            sim_process_hang_up(sim->processes[i]);
}

static void on_leaving(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_rubatod *rubatod = who;

    (void)stamp;
    (void)what;
    if (!rubatod->alive)
        return;
    if (!rubatod->own || (rubatod->killed && sim->now > rubatod->leaves)) {
        int64_t lease = sim_client_lease(rubatod->client);

        sim_rubatod_stop(rubatod);
        if (lease && !rubatod->node->severed && sim_store_up(sim))
            sim_store_revoke(sim, lease);
        return;
    }
    if (sim->now > rubatod->leaves) {
        for (struct sim_own *own = rubatod->own; own; own = own->next)
            sim_process_kill(own->process, true, "its rubatod is stopped");
        rubatod->killed = true;
        rubatod->leaves = sim->now + 400000;
    }
    sim_in(sim, 10000, on_leaving, rubatod, 0, NULL);
}

void sim_rubatod_leave(struct sim_rubatod *rubatod)
{
    if (rubatod->leaving)
        return;
    sim_say(rubatod->sim, rubatod->node->name, "rubatod is to leave");
    rubatod->leaving = true;
    rubatod->leaves = rubatod->sim->now + SIM_LEAVE_US;
    rubatod->leaving_since = sim_ms(rubatod->sim);
    sim_presence_look(rubatod);
    sim_in(rubatod->sim, 0, on_leaving, rubatod, 0, NULL);
}
