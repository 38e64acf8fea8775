/* SPDX-License-Identifier: Apache-2.0 */
/* What the living processes have of a job's state: whichever of them dies now, the others have all
 * of it. */
#include "sim_store.h"
#include "sim_worker.h"

#include "daemon/facts/members.h"

#include <inttypes.h>
#include <string.h>

/* A recovery that some processes have entered.  It is to go on without the processes that it leaves
 * out, and these may be a step ahead of it. */
static const Rb__Configuration *find_recovery(struct sim *sim, const struct sim_job *job)
{
    const struct rb_job_facts *facts = rb_facts_job(rb_mirror_facts(sim->observer), job->id);
    const Rb__JobState *state = facts && facts->state.message ? facts->state.state : NULL;
    const struct rb_fact *next = state ? rb_facts_configuration(facts, state->next) : NULL;

    if (!next || strcmp(next->configuration->cause, "crash") != 0)
        return NULL;
    for (size_t i = 0; i < sim->n_processes; i++)
        if (sim->processes[i]->job == job && sim->processes[i]->active &&
            sim->processes[i]->active->number == next->configuration->number)
            return next->configuration;
    return NULL;
}

/* Was a recovery made without this process, however long ago?  What the process commits when it
 * goes on leads nowhere. */
static bool is_left_behind(struct sim *sim, const struct sim_process *process)
{
    const struct rb_job_facts *facts =
        rb_facts_job(rb_mirror_facts(sim->observer), process->job->id);

    for (size_t i = 0; facts && process->number && i < facts->configurations.n; i++) {
        const Rb__Configuration *conf = facts->configurations.at[i].configuration;

        if (!strcmp(conf->cause, "crash") && rb_configuration_took_over(conf) &&
            process->number < conf->number && !rb_configuration_names(conf, process->name))
            return true;
    }
    return false;
}

/* A process that is told to leave no longer counts: it may be gone by the time that it is needed.
 * Nor does one that is left behind. */
static bool counts(struct sim *sim, const struct sim_job *job, const struct sim_process *process)
{
    return process->alive && process->job == job && !process->leave &&
           process->phase != SIM_FAILED && process->state.level >= 0 &&
           !is_left_behind(sim, process);
}

/* ret_without: a recovery leaves out one of them, which does not answer; that is a loss like a
 * death. */
static size_t list(struct sim *sim, const struct sim_job *job, struct sim_process **ret,
                   bool *ret_without)
{
    const Rb__Configuration *recovery = find_recovery(sim, job);
    size_t n = 0;

    *ret_without = false;
    for (size_t i = 0; i < sim->n_processes && n < SIM_PROCESSES_LIVE; i++) {
        struct sim_process *process = sim->processes[i];

        if (!counts(sim, job, process))
            continue;
        if (!recovery || rb_configuration_names(recovery, process->name))
            ret[n++] = process;
        else
            *ret_without = true;
    }
    return n;
}

/* How far the death of `without` may throw the others back to `rest`: a step that one process alone
 * has committed is taken again; and so is the step that led to a flip, where the process that was
 * given the level behind that step cannot say what the step was. */
static int64_t most_back(struct sim_process *const *processes, size_t n,
                         const struct sim_process *without, int64_t rest)
{
    for (size_t i = 0; i < n; i++)
        if (processes[i] != without && processes[i]->state.level == rest + 1 &&
            !sim_testify(processes[i]).entry)
            return 2;
    return 1;
}

static const struct sim_process *find_missed(struct sim_process *const *processes, size_t n)
{
    int64_t level, rest;

    if (!sim_have_all(processes, n, NULL, &level))
        return processes[0];
    for (size_t i = 0; i < n; i++)
        if (!sim_have_all(processes, n, processes[i], &rest) ||
            rest + most_back(processes, n, processes[i], rest) < level)
            return processes[i];
    return NULL;
}

/* What was asked for leaves all of the state with one member, or ends the training. */
static bool is_excused(struct sim *sim, const struct sim_job *job,
                       struct sim_process *const *processes, size_t n)
{
    const struct rb_job_facts *facts = rb_facts_job(rb_mirror_facts(sim->observer), job->id);
    const Rb__JobState *state = facts && facts->state.message ? facts->state.state : NULL;
    const struct rb_fact *active = state ? rb_facts_configuration(facts, state->active) : NULL;

    if (!active || state->phase != RB__PHASE__Running || state->saver ||
        active->configuration->n_members < 2)
        return true;
    for (size_t i = 0; i < n; i++)
        if (processes[i]->active && processes[i]->active->size < 2)
            return true;
    return false;
}

/* Checked from the first commit on at which no single process would be missed. */
void sim_check_doubled(struct sim *sim, struct sim_job *job, enum sim_moment moment)
{
    struct sim_process *processes[SIM_PROCESSES_LIVE];
    bool without;
    size_t n = list(sim, job, processes, &without);
    const struct sim_process *missed;
    int64_t level;

    if (job->replicas == 1)
        return;
    if (without || n < 2 || is_excused(sim, job, processes, n)) {
        job->doubled = false;
        return;
    }
    if (moment == SIM_DIES && job->doubled && !sim_have_all(processes, n, NULL, &level))
        sim_fail(sim, "%s: one has died, and nobody has its blocks any more", job->id);
    if (moment == SIM_DIES)
        job->doubled = false;
    missed = find_missed(processes, n);
    if (missed && job->doubled)
        sim_fail(sim, "%s: if %s died now, a part of the state would be lost", job->id,
                 missed->name);
    job->doubled = !missed && (job->doubled || moment == SIM_COMMITS);
}
