/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a process, and the pump that drives its threads. */
#include "sim_worker.h"

#include <stdio.h>
#include <string.h>

/* ---- Time -------------------------------------------------------------------------------------*/

static void on_timer(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)sim;
    (void)what;
    if (stamp != process->timer)
        return;
    process->timer_over = true;
    sim_pump(process);
}

void sim_wait(struct sim_process *process, uint64_t us)
{
    process->timer_over = false;
    sim_in(process->sim, us, on_timer, process, ++process->timer, NULL);
}

/* ---- The pump ---------------------------------------------------------------------------------*/

static bool pump_feeds(struct sim_process *process)
{
    struct sim_conf *confs[] = {process->prepared, process->next, process->active};
    bool moved = false;

    for (size_t c = 0; c < RB_COUNT(confs); c++)
        if (process->alive && confs[c] && confs[c]->feed)
            moved |= sim_feed_run(confs[c]->feed);
    return moved;
}

void sim_pump(struct sim_process *process)
{
    bool moved = true;

    process->again = true;
    if (process->pumping)
        return;
    process->pumping = true;
    while (process->alive && !process->stopped && !process->hung && (moved || process->again)) {
        process->again = false;
        moved = sim_pump_orders(process);
        moved |= process->alive && sim_pump_prepare(process);
        moved |= process->alive && pump_feeds(process);
        moved |= process->alive && sim_pump_step(process);
    }
    process->pumping = false;
}

/* ---- Life -------------------------------------------------------------------------------------*/

struct sim_process *sim_process_named(struct sim *sim, const char *name)
{
    for (size_t i = sim->n_processes; i-- > 0;)
        if (!strcmp(sim->processes[i]->name, name))
            return sim->processes[i];
    return NULL;
}

static void on_greets(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    struct sim_process *process = who;

    (void)sim;
    (void)stamp;
    (void)what;
    process->greets = true;
}

struct sim_process *sim_process_spawn(struct sim *sim, struct sim_node *node, struct sim_job *job,
                                      const char *name, uint32_t device, uint32_t spawned_for)
{
    struct sim_process *process = sim_new(sim, sizeof *process);

    if (sim->n_processes == SIM_PROCESSES) {
        sim_fail(sim, "too many processes");
        return process;
    }
    snprintf(process->name, sizeof process->name, "%s", name);
    process->sim = sim;
    process->node = node;
    process->job = job;
    process->device = device;
    process->spawned_for = spawned_for;
    process->steady = !sim_chance(sim, 4);
    process->slowness = 2 + (uint32_t)sim_chance(sim, process->steady ? 6 : 3);
    process->alive = true;
    process->state.level = process->stands_level = process->kept = -1;
    process->pending = process->applied = -1;
    sim_shards_begin(process);
    sim->processes[sim->n_processes++] = process;
    sim_in(sim, sim_between(sim, 5000, 200000), on_greets, process, 0, NULL);
    sim_process_await(process);
    sim_check_processes(sim);
    return process;
}

void sim_process_kill(struct sim_process *process, bool heard, const char *how)
{
    if (!process->alive)
        return;
    sim_say(process->sim, process->name, "of %s on %s:%u ends: %s", process->job->id,
            process->node->name, process->device, how);
    process->alive = false;
    process->timer++;
    if (process->feed)
        process->feed = NULL;
    if (process->state.level >= 0)
        sim_check_doubled(process->sim, process->job, process->leave ? SIM_CHANGES : SIM_DIES);
    sim_net_died(process->sim, process, heard);
    sim_agent_ended(process->sim, process);
}

void sim_process_continue(struct sim_process *process)
{
    process->stopped = process->hung = false;
    sim_pump(process);
}
