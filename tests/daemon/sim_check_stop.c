/* SPDX-License-Identifier: Apache-2.0 */
/* While a node stands still as a whole, with its links open: all that need no process there go on.
 *
 * A job must complete a step within a bound where nothing else keeps it from that: it runs, its
 * living members have all of its state and are as many as it needs, their nodes reach etcd and each
 * other, and there is a coordinator.  And a process that is told to go to a recovery goes there. */
#include "sim_rubatod.h"

#include "daemon/facts/holding.h"
#include "daemon/facts/members.h"

#include <inttypes.h>
#include <string.h>

enum {
    LOOK_US = 250000,
    BOUND_US = 20000000, /* the lease, the questions, a recovery or two, */
    BOUND_STEPS = 6,     /* four steps until one is late, and two that are to be seen */
    OBEY_US = 400000,    /* an order, behind what is being computed */
    SLOW = 4,            /* a process may come to be that slow (sim_step.c) */
};

static const struct rb_facts *truth(struct sim *sim)
{
    return rb_mirror_facts(sim->observer);
}

/* ---- Who can go on ----------------------------------------------------------------------------*/

static bool is_well(struct sim *sim, const struct sim_node *node)
{
    const struct sim_rubatod *rubatod = node->rubatod;

    return rubatod && rubatod->started && !rubatod->leaving && rubatod->client->connected &&
           sim_client_reaches(rubatod->client) && !node->lags &&
           rb_fact_find(&truth(sim)->nodes, node->name);
}

static bool is_coordinated(struct sim *sim)
{
    const struct rb_facts *facts = truth(sim);
    const struct sim_node *node =
        facts->leader.message ? sim_node(sim, facts->leader.leader->node) : NULL;

    return node && is_well(sim, node) && node->rubatod->fence == facts->leader.created;
}

/* Do all nodes that do not stand still reach each other? */
static bool are_together(const struct sim *sim)
{
    for (size_t a = 0; a < sim->n_nodes; a++)
        for (size_t b = 0; b < sim->n_nodes; b++)
            if (sim->apart[a][b] && !sim->nodes[a].stopped && !sim->nodes[b].stopped)
                return false;
    return true;
}

/* The process does what it can; or it has ended, or its node stands still. */
static bool is_certain(struct sim *sim, const struct sim_process *process)
{
    if (!process->alive || process->node->stopped)
        return true;
    return is_well(sim, process->node) && !rb_node_must_be_left(truth(sim), process->node->name) &&
           !process->stopped && !process->hung && !process->ends_behind &&
           process->state.level < process->job->steps;
}

static bool may_run(const struct rb_job_facts *facts)
{
    const Rb__Wish *wish = facts->wish.message ? facts->wish.wish : NULL;

    return facts->job.message && facts->state.message && wish && !wish->paused &&
           !wish->cancelled && !wish->deleted && !facts->state.state->saver &&
           facts->state.state->phase == RB__PHASE__Running;
}

/* Members of the active configuration that go on, by rank; returns how many. */
static size_t find_here(struct sim *sim, const Rb__Configuration *active, bool *here,
                        struct sim_process **ret)
{
    size_t n = 0;

    for (size_t m = 0; m < active->n_members; m++) {
        const char *name = active->members[m]->worker;
        struct sim_process *process = name ? sim_process_named(sim, name) : NULL;

        here[m] = process && process->alive && !process->node->stopped && !process->leave &&
                  process->phase != SIM_FAILED && process->state.level >= 0;
        if (here[m])
            ret[n++] = process;
    }
    return n;
}

/* Do members that go on have all of the state, by what they hold and by what the rules can know? */
static bool are_enough(struct sim *sim, const struct rb_job_facts *facts)
{
    const struct rb_fact *fact = rb_facts_configuration(facts, facts->state.state->active);
    const Rb__DevicesSpec *devices = facts->job.job->spec->devices;
    struct sim_process *processes[SIM_RANKS];
    struct rb_arena arena = {0};
    bool here[SIM_RANKS], whole;
    struct rb_replicas how;
    int64_t level;
    size_t n;

    if (!fact)
        return false;
    n = find_here(sim, fact->configuration, here, processes);
    if (!n || n < devices->min || !sim_have_all(processes, n, NULL, &level))
        return false;
    how = rb_holding_of(facts->job.job, fact->configuration, &arena);
    whole =
        !rb_holding_sharded(facts->job.job, fact->configuration) || rb_replicas_whole(&how, here);
    rb_arena_done(&arena);
    return whole;
}

static bool can_go_on(struct sim *sim, const struct sim_job *job)
{
    const struct rb_job_facts *facts = rb_facts_job(truth(sim), job->id);

    if (!facts || !may_run(facts) || !is_coordinated(sim) || !are_together(sim))
        return false;
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->job == job && !is_certain(sim, sim->processes[i]))
            return false;
    return are_enough(sim, facts);
}

/* ---- What must be -----------------------------------------------------------------------------*/

/* A step that one process takes alone, at most. */
static uint64_t step_takes(const struct sim_process *process)
{
    uint64_t slowness = process->slowness > SLOW ? process->slowness : SLOW;

    return process->job->step_us * 3 / 2 * process->job->microbatches * slowness / 2;
}

static uint64_t bound(const struct sim *sim, const struct sim_job *job)
{
    uint64_t step = 0;

    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->job == job && sim->processes[i]->alive &&
            step_takes(sim->processes[i]) > step)
            step = step_takes(sim->processes[i]);
    return BOUND_US + BOUND_STEPS * step;
}

static void check_job(struct sim *sim, struct sim_job *job)
{
    uint64_t since;

    if (!can_go_on(sim, job)) {
        job->able = 0;
        return;
    }
    if (!job->able)
        job->able = sim->now;
    since = job->able > sim->disturbed ? job->able : sim->disturbed;
    since = since > job->stepped ? since : job->stepped;
    if (sim->now > since + bound(sim, job))
        sim_fail(sim, "%s has completed no step for %" PRIu64 " s, and nobody is missing", job->id,
                 (sim->now - since) / 1000000);
}

/* A process that is told to go to a recovery may finish what it computes; then it waits for
 * nobody. */
static void check_process(struct sim *sim, struct sim_process *process)
{
    bool goes = process->alive && !process->stopped && !process->hung &&
                sim_mailbox_goes(process) && process->go == process->breaks_off;

    if (!goes || (process->phase == SIM_TRAINING && process->stage <= SIM_STAGE_COMPUTES))
        process->lingers = 0;
    else if (!process->lingers)
        process->lingers = sim->now;
    else if (sim->now > process->lingers + OBEY_US)
        sim_fail(sim, "%s was told to go to %u, which recovers, and waits in %u", process->name,
                 process->go, process->in_group->number);
}

static void on_look(struct sim *sim, void *who, uint64_t stamp, void *what)
{
    bool stopped = false;

    (void)who;
    (void)stamp;
    (void)what;
    for (size_t n = 0; n < sim->n_nodes; n++)
        stopped |= sim->nodes[n].stopped != 0;
    for (size_t j = 0; stopped && j < sim->n_jobs; j++)
        check_job(sim, &sim->jobs[j]);
    for (size_t i = 0; stopped && i < sim->n_processes; i++)
        check_process(sim, sim->processes[i]);
    sim->watched = stopped;
    if (stopped)
        sim_in(sim, LOOK_US, on_look, NULL, 0, NULL);
}

void sim_check_goes_on(struct sim *sim)
{
    if (sim->watched)
        return;
    sim->watched = true;
    for (size_t j = 0; j < sim->n_jobs; j++)
        sim->jobs[j].able = 0;
    for (size_t i = 0; i < sim->n_processes; i++)
        sim->processes[i]->lingers = 0;
    sim_in(sim, 0, on_look, NULL, 0, NULL);
}
