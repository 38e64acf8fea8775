/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls a cluster.  Each fault ends by itself some time later, the last faults when the
 * story is to have a good end. */
#include "sim_fault.h"

#include <string.h>

enum {
    PAUSE_US = 5000000,   /* between two faults, at most; */
    TOGETHER_US = 200000, /* a third of them come upon each other's heels */
    LONG_US = 60000000,   /* some faults last so long, at most */
};

uint64_t sim_fault_lasts(struct sim *sim)
{
    return sim_between(sim, 1000, sim_chance(sim, 8) ? SIM_LASTS_US : LONG_US);
}

static struct sim_process *any_process(struct sim *sim)
{
    struct sim_process *chosen = NULL;
    uint64_t n = 0;

    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->alive && !sim_chance(sim, ++n))
            chosen = sim->processes[i];
    return chosen;
}

struct sim_node *sim_fault_any_node(struct sim *sim)
{
    return &sim->nodes[sim_chance(sim, sim->n_nodes)];
}

/* ---- Workers ----------------------------------------------------------------------------------*/

static void on_continue(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)stamp;
    (void)what;
    sim->disturbed = sim->now;
    if (process->alive && !process->node->stopped)
        sim_process_continue(process);
}

/* Or never, if some rubatod has heard of the process: no rubatod kills one that it has not heard
 * of. */
static void continues(struct sim *sim, struct sim_process *process)
{
    if (sim_chance(sim, 2) || !process->agent)
        sim_in(sim, sim_fault_lasts(sim), on_continue, process, 0, NULL);
}

static void hurt_worker(struct sim *sim)
{
    struct sim_process *process = any_process(sim);

    if (!process)
        return;
    switch (sim_chance(sim, 8)) {
    case 0:
        sim_say(sim, "fault", "%s is stopped", process->name);
        process->stopped = true;
        continues(sim, process);
        break;
    case 1:
        sim_say(sim, "fault", "%s hangs", process->name);
        process->hung = true;
        continues(sim, process);
        break;
    case 2:
    case 3:
    case 4:
        process->ends_behind = sim_between(sim, 1, 40);
        break;
    default:
        sim_process_kill(process, true, "killed");
    }
}

/* ---- Nodes ------------------------------------------------------------------------------------*/

void sim_node_stop(struct sim *sim, struct sim_node *node, bool machine)
{
    sim_say(sim, "fault", machine ? "machine %s is lost" : "all of node %s dies", node->name);
    node->down = machine;
    if (node->rubatod)
        sim_rubatod_stop(node->rubatod);
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->node == node)
            sim_process_kill(sim->processes[i], !machine, "died with its node");
}

static void give_up_links(struct sim *sim, const struct sim_node *node)
{
    size_t n = (size_t)(node - sim->nodes);

    for (size_t other = 0; other < sim->n_nodes; other++) {
        sim_net_gave_up(sim, n, other);
        sim_net_gave_up(sim, other, n);
    }
}

void sim_node_start(struct sim *sim, struct sim_node *node)
{
    if (node->down)
        give_up_links(sim, node);
    node->down = false;
    if (node->stopped)
        sim_fault_continue(sim, node);
    sim_net_healed(sim);
    sim_rubatod_start(sim, node);
}

static void on_node_back(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)what;
    if (node->stopped && node->stopped != stamp)
        return; /* that is the end of another stop */
    sim->disturbed = sim->now;
    if (node->rubatod && node->rubatod->leaving)
        sim_in(sim, 1000000, on_node_back, node, 0, NULL);
    else if (node->down || !node->rubatod)
        sim_node_start(sim, node);
}

void sim_fault_ends(struct sim *sim, uint64_t us, struct sim_node *node)
{
    sim_in(sim, us, on_node_back, node, node->stopped, NULL);
}

static void on_links_over(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    const struct sim_node *node = who;

    (void)stamp;
    (void)what;
    sim->disturbed = sim->now;
    if (node->down)
        give_up_links(sim, node);
}

static void on_room(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)sim;
    (void)stamp;
    (void)what;
    node->full = false;
}

static void fill(struct sim *sim, struct sim_node *node)
{
    sim_say(sim, "fault", "there is no room for a parked state on %s", node->name);
    node->full = true;
    sim_in(sim, sim_between(sim, 1000, LONG_US), on_room, node, 0, NULL);
}

static void hurt_node(struct sim *sim)
{
    struct sim_node *node = sim_fault_any_node(sim);
    uint64_t back = sim_between(sim, 1000, sim_chance(sim, 3) ? 3000000 : LONG_US / 3);

    if (!node->rubatod || node->down)
        return;
    switch (sim_chance(sim, 11)) {
    case 8:
    case 9:
        fill(sim, node);
        return;
    case 10:
        sim_fault_stand(sim, node);
        break;
    case 0:
        sim_node_stop(sim, node, true);
        sim_in(sim, SIM_GIVE_UP_US, on_links_over, node, 0, NULL);
        break;
    case 1:
        sim_node_stop(sim, node, false);
        break;
    case 2:
        sim_rubatod_leave(node->rubatod);
        back += 31000000;
        break;
    default:
        sim_rubatod_stop(node->rubatod);
    }
    sim_fault_ends(sim, back, node);
}

/* ---- All --------------------------------------------------------------------------------------*/

static void on_fault(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)who;
    (void)what;
    if (sim->quiet)
        return;
    if (sim->now < sim->calm) {
        sim_in(sim, sim->calm - sim->now, on_fault, NULL, stamp, NULL);
        return;
    }
    sim->faults++;
    sim->disturbed = sim->now;
    switch (sim_chance(sim, 8)) {
    case 0:
        sim_fault_part(sim);
        break;
    case 1:
    case 2:
        hurt_node(sim);
        break;
    case 3:
    case 4:
        sim_fault_etcd(sim);
        break;
    default:
        hurt_worker(sim);
    }
    sim_in(sim, sim_between(sim, 1000, sim_chance(sim, 3) ? stamp : TOGETHER_US), on_fault, NULL,
           stamp, NULL);
}

/* Some stories have many faults, some hardly any. */
void sim_faults_begin(struct sim *sim)
{
    static const uint64_t pauses[] = {PAUSE_US, PAUSE_US / 4, PAUSE_US * 3, PAUSE_US / 20};

    if (!sim_chance(sim, 4))
        fill(sim, sim_fault_any_node(sim));
    if (!sim_chance(sim, 2)) { /* a job may grow before */
        sim->calm = sim_between(sim, 2000000, 12000000);
        sim_fault_long_stop(sim, sim->calm - 1000000);
    }
    sim_in(sim, 1000000, on_fault, NULL, pauses[sim_chance(sim, RB_COUNT(pauses))], NULL);
}

void sim_faults_heal(struct sim *sim)
{
    sim_say(sim, "fault", "no more of them");
    sim->quiet = true;
    memset(sim->apart, 0, sizeof sim->apart);
    sim_store_stand(sim, true);
    for (size_t n = 0; n < sim->n_nodes; n++) {
        sim->nodes[n].severed = sim->nodes[n].lags = sim->nodes[n].full = false;
        sim_node_start(sim, &sim->nodes[n]);
    }
    for (size_t i = 0; i < sim->n_processes; i++)
        sim->processes[i]->ends_behind = sim->processes[i]->stops_behind = 0;
    sim_net_healed(sim);
    sim_clients_notice(sim);
}
