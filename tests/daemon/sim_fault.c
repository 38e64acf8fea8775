/* SPDX-License-Identifier: Apache-2.0 */
/* What befalls a cluster.  Each fault ends by itself some time later, the last ones when the story
 * is to have a good end. */
#include "sim_rubatod.h"

#include <string.h>

enum {
    PAUSE_US = 5000000,     /* between two faults, at most */
    LASTS_US = 12000000,    /* most faults, at most */
    LONG_US = 60000000,     /* some */
    GIVE_UP_US = 7000000,   /* a link to nowhere */
    STOP_LOW_US = 45000000, /* a long stop of a node */
    STOP_HIGH_US = 75000000,
    AGAIN_US = 100000,
    SENDS = 4,          /* of a worker's, until it has opened what a death has left */
    ABOUT_US = 1000000, /* what comes at the same time */
};

static uint64_t lasts(struct sim *sim)
{
    return sim_between(sim, 1000, sim_chance(sim, 8) ? LASTS_US : LONG_US);
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

static struct sim_node *any_node(struct sim *sim)
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

/* Or never, if some rubatod has heard of it: who has not is nobody's to kill. */
static void continues(struct sim *sim, struct sim_process *process)
{
    if (sim_chance(sim, 2) || !process->agent)
        sim_in(sim, lasts(sim), on_continue, process, 0, NULL);
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

/* No link ends, and nobody on the node can say anything. */
static void stop_whole(struct sim *sim, struct sim_node *node)
{
    sim_say(sim, "fault", "all of node %s is stopped", node->name);
    node->stopped = ++sim->sequence;
    sim_rubatod_stop(node->rubatod);
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->node == node)
            sim->processes[i]->stopped = true;
    sim_check_goes_on(sim);
}

static void continue_whole(struct sim *sim, struct sim_node *node)
{
    node->stopped = 0;
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->node == node && sim->processes[i]->alive &&
            sim->processes[i]->stopped)
            sim_process_continue(sim->processes[i]);
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
        continue_whole(sim, node);
    sim_net_healed(sim);
    sim_rubatod_start(sim, node);
}

static void on_node_back(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)what;
    if (node->stopped && node->stopped != stamp)
        return; /* that is another one's end */
    sim->disturbed = sim->now;
    if (node->rubatod && node->rubatod->leaving)
        sim_in(sim, 1000000, on_node_back, node, 0, NULL);
    else if (node->down || !node->rubatod)
        sim_node_start(sim, node);
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
    struct sim_node *node = any_node(sim);
    uint64_t back = sim_between(sim, 1000, sim_chance(sim, 3) ? 3000000 : LONG_US / 3);

    if (!node->rubatod || node->down)
        return;
    switch (sim_chance(sim, 11)) {
    case 8:
    case 9:
        fill(sim, node);
        return;
    case 10:
        stop_whole(sim, node);
        break;
    case 0:
        sim_node_stop(sim, node, true);
        sim_in(sim, GIVE_UP_US, on_links_over, node, 0, NULL);
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
    sim_in(sim, back, on_node_back, node, node->stopped, NULL);
}

/* ---- Networks ---------------------------------------------------------------------------------*/

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

/* Nothing comes through from there to here; perhaps the other way round neither. */
static void part(struct sim *sim)
{
    size_t a = sim_chance(sim, sim->n_nodes), b = sim_chance(sim, sim->n_nodes);
    uint64_t us = lasts(sim);

    if (a == b)
        return;
    sim_say(sim, "fault", "nodes %s and %s are apart", sim->nodes[a].name, sim->nodes[b].name);
    sim->apart[a][b] = true;
    sim_in(sim, us, on_joined, NULL, a * SIM_NODES + b, NULL);
    sim_in(sim, GIVE_UP_US, on_apart_long, NULL, a * SIM_NODES + b, NULL);
    if (sim_chance(sim, 2)) {
        sim->apart[b][a] = true;
        sim_in(sim, us, on_joined, NULL, b * SIM_NODES + a, NULL);
    }
}

static void on_reaches_etcd(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)stamp;
    (void)what;
    sim->disturbed = sim->now;
    node->severed = false;
    sim_clients_notice(sim);
}

static void on_caught_up(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)stamp;
    (void)what;
    sim->disturbed = sim->now;
    node->lags = false;
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

static void take_etcd_away(struct sim *sim, uint64_t us)
{
    sim_say(sim, "fault", "etcd is away");
    sim_store_stand(sim, false);
    sim_in(sim, us, on_etcd_back, NULL, 0, NULL);
}

static void hurt_etcd(struct sim *sim)
{
    struct sim_node *node = any_node(sim);

    switch (sim_chance(sim, 8)) {
    case 0:
        take_etcd_away(sim, lasts(sim));
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
        sim_in(sim, sim_between(sim, 100000, 6000000), on_caught_up, node, 0, NULL);
        break;
    default:
        sim_say(sim, "fault", "%s does not reach etcd", node->name);
        node->severed = true;
        sim_in(sim, lasts(sim), on_reaches_etcd, node, 0, NULL);
    }
}

/* ---- A long stop ------------------------------------------------------------------------------*/

static void on_stop(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)what;
    if (sim->quiet || !node->rubatod || node->down)
        return;
    sim->disturbed = sim->now;
    stop_whole(sim, node);
    sim_in(sim, stamp - sim->now, on_node_back, node, node->stopped, NULL);
}

/* Of the job, elsewhere than on that node. */
static struct sim_process *any_beside(struct sim *sim, const struct sim_job *job,
                                      const struct sim_node *node)
{
    struct sim_process *chosen = NULL;
    uint64_t n = 0;

    for (size_t i = 0; i < sim->n_processes; i++) {
        struct sim_process *process = sim->processes[i];

        if (process->alive && process->job == job && process->node != node && !sim_chance(sim, ++n))
            chosen = process;
    }
    return chosen;
}

/* stamp: what that leaves is being opened when the node is stopped.  Else it is stopped first, and
 * who dies has said what its peers wait for. */
static void on_killed_beside(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = any_beside(sim, what, who);

    sim->disturbed = sim->now;
    if (process && stamp)
        sim_process_kill(process, true, "killed");
    else if (process && process->active)
        process->ends_behind = process->active->size - 1;
    for (size_t i = 0; process && stamp && i < sim->n_processes; i++)
        if (sim->processes[i]->node == who && sim->processes[i]->job == what)
            sim->processes[i]->stops_behind = sim_between(sim, 1, SENDS);
}

void sim_node_stand(struct sim *sim, struct sim_node *node)
{
    sim_in(sim, 0, on_stop, node, sim->calm, NULL);
}

static void on_away_beside(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    (void)who;
    (void)what;
    sim->disturbed = sim->now;
    take_etcd_away(sim, stamp);
}

static struct sim_node *find_coordinator(struct sim *sim)
{
    for (size_t n = 0; n < sim->n_nodes; n++)
        if (sim->nodes[n].rubatod && sim->nodes[n].rubatod->fence)
            return &sim->nodes[n];
    return any_node(sim);
}

/* Who trains with somebody on another node; rather with two, for one of them may die. */
static struct sim_process *any_trainer(struct sim *sim)
{
    struct sim_process *chosen = NULL;
    uint64_t n = 0;

    for (size_t i = 0; i < sim->n_processes; i++) {
        struct sim_process *process = sim->processes[i];
        bool beside = false;

        if (!process->alive || process->phase != SIM_TRAINING)
            continue;
        for (uint32_t r = 0; r < process->active->size; r++)
            beside |= process->active->members[r]->node != process->node;
        if (beside && (process->active->size > 2 || !sim_chance(sim, 40)) && !sim_chance(sim, ++n))
            chosen = process;
    }
    return chosen;
}

/* So long that a job that waits for its end is found (sim_check_stop.c): alone or about the time of
 * a death, at times while what that leaves is being opened, and of an outage of etcd's; and then
 * nothing else begins. */
static void on_long_stop(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    const struct sim_process *process = sim->quiet ? NULL : any_trainer(sim);
    uint64_t at = sim_between(sim, 1, ABOUT_US), stops = at;
    bool kills = sim_chance(sim, 4) != 0, opens = sim_chance(sim, 3) != 0;
    struct sim_node *node;

    (void)who;
    (void)what;
    if (!process) {
        if (!sim->quiet)
            sim_in(sim, AGAIN_US, on_long_stop, NULL, stamp, NULL);
        return;
    }
    node = opens && sim_chance(sim, 3) ? find_coordinator(sim) : process->node;
    sim->faults++;
    sim->calm = sim->now + sim_between(sim, STOP_LOW_US, STOP_HIGH_US);
    if (kills)
        sim_in(sim, at, on_killed_beside, node, opens, process->job);
    if (kills && opens) /* at the latest */
        stops += ABOUT_US;
    sim_in(sim, stops, on_stop, node, sim->calm, NULL);
    if (opens && sim_chance(sim, 2))
        sim_in(sim, sim_between(sim, 1, at), on_away_beside, NULL, sim_between(sim, 1000, LASTS_US),
               NULL);
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
        part(sim);
        break;
    case 1:
    case 2:
        hurt_node(sim);
        break;
    case 3:
    case 4:
        hurt_etcd(sim);
        break;
    default:
        hurt_worker(sim);
    }
    sim_in(sim, sim_between(sim, 1000, stamp), on_fault, NULL, stamp, NULL);
}

/* Some stories are wild, some hardly disturbed. */
void sim_faults_begin(struct sim *sim)
{
    static const uint64_t pauses[] = {PAUSE_US, PAUSE_US / 4, PAUSE_US * 3, PAUSE_US / 20};

    if (!sim_chance(sim, 4))
        fill(sim, any_node(sim));
    if (!sim_chance(sim, 2)) { /* a job may grow before */
        sim->calm = sim_between(sim, 2000000, 12000000);
        sim_in(sim, sim->calm - 1000000, on_long_stop, NULL, 0, NULL);
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
