/* SPDX-License-Identifier: Apache-2.0 */
/* A node that stands still as a whole: no link ends, and no process on it can say anything. */
#include "sim_fault.h"

enum {
    STOP_LOW_US = 45000000, /* a long stop */
    STOP_HIGH_US = 75000000,
    AGAIN_US = 100000,
    SENDS = 4,          /* of a worker, until it has opened what is left after a death */
    ABOUT_US = 1000000, /* what comes at the same time */
};

void sim_fault_stand(struct sim *sim, struct sim_node *node)
{
    sim_say(sim, "fault", "all of node %s is stopped", node->name);
    node->stopped = ++sim->sequence;
    sim_rubatod_stop(node->rubatod);
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->node == node)
            sim->processes[i]->stopped = true;
    sim_check_goes_on(sim);
}

void sim_fault_continue(struct sim *sim, struct sim_node *node)
{
    node->stopped = 0;
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->node == node && sim->processes[i]->alive &&
            sim->processes[i]->stopped)
            sim_process_continue(sim->processes[i]);
}

/* ---- A long one -------------------------------------------------------------------------------*/

static void on_stop(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_node *node = who;

    (void)what;
    if (sim->quiet || !node->rubatod || node->down)
        return;
    sim->disturbed = sim->now;
    sim_fault_stand(sim, node);
    sim_fault_ends(sim, stamp - sim->now, node);
}

/* A process of the job, elsewhere than on that node. */
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

/* stamp: the node is stopped while what the death leaves is being opened.  Else the node is stopped
 * first, and the process that dies has said what its peers wait for. */
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
    sim_fault_etcd_away(sim, stamp);
}

static struct sim_node *find_coordinator(struct sim *sim)
{
    for (size_t n = 0; n < sim->n_nodes; n++)
        if (sim->nodes[n].rubatod && sim->nodes[n].rubatod->fence)
            return &sim->nodes[n];
    return sim_fault_any_node(sim);
}

/* A process that trains with one on another node; rather with two, because one of them may die. */
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

/* A stop so long that a job that waits for its end is found (sim_check_stop.c): alone, or about the
 * time of a death, at times while what the death leaves is being opened, and about the time of an
 * etcd outage; and no other fault begins until it ends. */
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
        sim_in(sim, sim_between(sim, 1, at), on_away_beside, NULL,
               sim_between(sim, 1000, SIM_LASTS_US), NULL);
}

void sim_fault_long_stop(struct sim *sim, uint64_t us)
{
    sim_in(sim, us, on_long_stop, NULL, 0, NULL);
}
