/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes reach each other, and etcd. */
#include "sim_fault.h"

static void on_joined(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    size_t a = stamp / SIM_NODES, b = stamp % SIM_NODES;

    (void)who;
    (void)what;
    sim->disturbed = sim->now;
    sim->apart[a][b] = false;
    sim_net_healed(sim);
}

static void on_apart_long(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    size_t a = stamp / SIM_NODES, b = stamp % SIM_NODES;

    (void)who;
    (void)what;
    if (!sim->apart[a][b])
        return;
    sim->disturbed = sim->now;
    sim_net_gave_up(sim, a, b);
    sim_net_gave_up(sim, b, a);
}

/* Nothing comes through from one node to the other; at times nothing comes the other way either. */
void sim_fault_part(struct sim *sim)
{
    size_t a = sim_chance(sim, sim->n_nodes), b = sim_chance(sim, sim->n_nodes);
    uint64_t us = sim_fault_lasts(sim);

    if (a == b)
        return;
    sim_say(sim, "fault", "nodes %s and %s are apart", sim->nodes[a].name, sim->nodes[b].name);
    sim->apart[a][b] = true;
    sim_in(sim, us, on_joined, NULL, a * SIM_NODES + b, NULL);
    sim_in(sim, SIM_GIVE_UP_US, on_apart_long, NULL, a * SIM_NODES + b, NULL);
    if (sim_chance(sim, 2)) {
        sim->apart[b][a] = true;
        sim_in(sim, us, on_joined, NULL, b * SIM_NODES + a, NULL);
    }
}

/* A node is no longer cut off from etcd: `severed` or `lags`. */
static void on_hears_etcd(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    bool *cut_off = who;

    (void)stamp;
    (void)what;
    sim->disturbed = sim->now;
    *cut_off = false;
    sim_clients_notice(sim);
}

static void on_etcd_back(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)who;
    (void)stamp;
    (void)what;
    sim->disturbed = sim->now;
    sim_store_stand(sim, true);
}

void sim_fault_etcd_away(struct sim *sim, uint64_t us)
{
    sim_say(sim, "fault", "etcd is away");
    sim_store_stand(sim, false);
    sim_in(sim, us, on_etcd_back, NULL, 0, NULL);
}

void sim_fault_etcd(struct sim *sim)
{
    struct sim_node *node = sim_fault_any_node(sim);

    switch (sim_chance(sim, 8)) {
    case 0:
        sim_fault_etcd_away(sim, sim_fault_lasts(sim));
        break;
    case 1:
    case 2:
        sim_say(sim, "fault", "etcd is compacted");
        sim_store_compact(sim);
        break;
    case 3:
    case 4:
        sim_say(sim, "fault", "the watch of %s stands still", node->name);
        node->lags = true;
        sim_in(sim, sim_between(sim, 100000, 6000000), on_hears_etcd, &node->lags, 0, NULL);
        break;
    default:
        sim_say(sim, "fault", "%s does not reach etcd", node->name);
        node->severed = true;
        sim_in(sim, sim_fault_lasts(sim), on_hears_etcd, &node->severed, 0, NULL);
    }
}
