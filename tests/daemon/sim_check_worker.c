/* SPDX-License-Identifier: Apache-2.0 */
/* What must never happen among workers; and how a story must end. */
#include "sim_store.h"
#include "sim_worker.h"

#include "daemon/facts/members.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CAME_BACK_US = 20000000 };

/* Members of one configuration are never more than a step apart. */
static void check_peers(struct sim *sim, const struct sim_process *process)
{
    for (size_t i = 0; i < sim->n_processes; i++) {
        const struct sim_process *peer = sim->processes[i];

        if (peer->alive && peer->job == process->job && peer->phase == SIM_TRAINING &&
            peer->number == process->number && process->phase == SIM_TRAINING &&
            process->state.level > peer->state.level + 1)
            sim_fail(sim,
                     "%s is at level %" PRId64 " and %s, in the same configuration, at %" PRId64,
                     process->name, process->state.level, peer->name, peer->state.level);
    }
}

/* A process has the state of a step as a configuration made it, and can be asked. */
static bool is_kept(struct sim *sim, const struct sim_job *job, uint32_t number, int64_t level)
{
    for (size_t i = 0; i < sim->n_processes; i++) {
        const struct sim_process *other = sim->processes[i];

        if (other->alive && other->job == job && other->number == number &&
            other->state.level >= level && sim->now > other->node->seen_away + CAME_BACK_US)
            return true;
    }
    return false;
}

/* A step is committed in one configuration; again only where no process is left that has it, or by
 * a process that was cut off and does not know that it was replaced, or that its job has fallen
 * back. */
void sim_check_once(struct sim *sim, const struct sim_process *process)
{
    struct sim_job *job = process->job;
    uint32_t *first = &job->trains[process->state.level];

    if (process->number <= job->last_fall)
        return;
    if (!*first)
        *first = process->number;
    if (*first == process->number)
        return;
    if (sim->now < process->node->seen_away + CAME_BACK_US ||
        !is_kept(sim, job, *first, process->state.level)) {
        *first = process->number;
        return;
    }
    sim_fail(sim, "%s commits step %" PRId64 " in configuration %u, that %u has committed",
             process->name, process->state.level, process->number, *first);
}

/* A state that is gathered to be saved stays as it is: a pause changes nothing. */
void sim_check_stands(struct sim *sim, const struct sim_process *process)
{
    const struct rb_job_facts *job = rb_facts_job(rb_mirror_facts(sim->observer), process->job->id);
    const struct rb_fact *fact = job ? rb_facts_configuration(job, process->number) : NULL;

    if (fact && !strcmp(fact->configuration->cause, "park"))
        sim_fail(sim,
                 "%s commits step %" PRId64 " in configuration %u, which gathers %s to park it",
                 process->name, process->state.level, process->number, job->id);
}

/* The process came to its level by a step, and no rank that voted for it has died since. */
static bool all_live(const struct sim_process *process)
{
    for (uint32_t r = 0; process->committed && r < process->active->size; r++)
        if (!process->active->members[r]->alive)
            return false;
    return process->committed;
}

/* A process has come to a level: by a step, or by opening or following. */
void sim_check_commit(struct sim *sim, struct sim_process *process)
{
    struct sim_job *job = process->job;

    if (!sim_agrees(&process->state, sim_reference(sim, job, process->state.level)))
        sim_fail(sim, "%s holds other bits of level %" PRId64 " of %s than the undisturbed run",
                 process->name, process->state.level, job->id);
    if (process->state.level > job->committed)
        job->committed = process->state.level;
    check_peers(sim, process);
    sim_check_doubled(sim, job, all_live(process) ? SIM_COMMITS : SIM_CHANGES);
}

/* A device has one process; a process that its agent never met and that does nothing ends by
 * itself. */
void sim_check_processes(struct sim *sim)
{
    const struct sim_process *newest = sim->processes[sim->n_processes - 1];

    for (size_t i = 0; i + 1 < sim->n_processes; i++) {
        const struct sim_process *other = sim->processes[i];

        if (other->alive && other->node == newest->node && other->device == newest->device &&
            (other->agent || other->state.level >= 0 || other->in_group))
            sim_fail(sim, "%s (%s) and %s (%s) share device %s:%u", other->name, other->job->id,
                     newest->name, newest->job->id, newest->node->name, newest->device);
    }
}

/* ---- The end ----------------------------------------------------------------------------------*/

static size_t alive(const struct sim *sim)
{
    size_t n = 0;

    for (size_t i = 0; i < sim->n_processes; i++)
        n += sim->processes[i]->alive;
    return n;
}

bool sim_check_over(struct sim *sim)
{
    const struct rb_facts *facts = rb_mirror_facts(sim->observer);

    for (size_t j = 0; j < sim->n_jobs; j++)
        if (!sim->jobs[j].submitted)
            return false;
    for (size_t j = 0; j < facts->n_jobs; j++)
        if (!facts->jobs[j].state.message || !rb_phase_final(facts->jobs[j].state.state->phase) ||
            facts->jobs[j].workers.n ||
            (facts->jobs[j].wish.message && facts->jobs[j].wish.wish->deleted))
            return false;
    return !alive(sim);
}

static void tell_processes(struct sim *sim)
{
    static const char *const phases[] = {"idle", "opening", "following", "training", "frozen",
                                         "left", "done",    "failed",    "leaving"};

    for (size_t i = 0; i < sim->n_processes; i++) {
        const struct sim_process *p = sim->processes[i];

        if (p->alive)
            sim_say(sim, "CHECK",
                    "%s of %s on %s:%u is %s, stage %d, configuration %u (told %u, ready %u, go "
                    "%u), level %" PRId64 "%s",
                    p->name, p->job->id, p->node->name, p->device, phases[p->phase], p->stage,
                    p->number, p->configured, p->ready, p->go, p->state.level,
                    p->leave ? ", told to leave" : "");
    }
}

/* The story should be over: what keeps it from ending? */
void sim_check_liveness(struct sim *sim)
{
    const struct rb_facts *facts = rb_mirror_facts(sim->observer);

    tell_processes(sim);
    for (size_t j = 0; j < facts->n_jobs; j++) {
        const struct rb_job_facts *job = &facts->jobs[j];

        if (!job->state.message || !rb_phase_final(job->state.state->phase))
            sim_fail(sim, "%s does not end: phase %d, active %u, next %u, saver %s: %s", job->id,
                     job->state.message ? (int)job->state.state->phase : -1,
                     job->state.message ? job->state.state->active : 0,
                     job->state.message ? job->state.state->next : 0,
                     job->state.message && job->state.state->saver ? job->state.state->saver : "-",
                     job->state.message && job->state.state->reason ? job->state.state->reason
                                                                    : "-");
        else if (job->workers.n)
            sim_fail(sim, "%s is over, and a report stays: %s", job->id, job->workers.at[0].text);
        else if (job->wish.message && job->wish.wish->deleted)
            sim_fail(sim, "%s is to be deleted and stays", job->id);
    }
    if (alive(sim))
        sim_fail(sim, "every job is over, and %zu processes live", alive(sim));
}

static void check_result(struct sim *sim, struct sim_job *job, const Rb__JobState *state)
{
    const struct sim_node *node = state->parked ? sim_node(sim, state->parked->node) : NULL;
    const struct sim_file *file =
        node ? sim_file_get(sim, state->parked->path, (int)(node - sim->nodes)) : NULL;

    if (!file || !sim_same(&file->state, sim_reference(sim, job, job->steps)))
        sim_fail(sim, "the result of %s is not that of the undisturbed run", job->id);
}

void sim_check_ends(struct sim *sim)
{
    const struct rb_facts *facts = rb_mirror_facts(sim->observer);

    for (size_t j = 0; j < sim->n_jobs; j++) {
        const struct rb_job_facts *job = rb_facts_job(facts, sim->jobs[j].id);
        const Rb__JobState *state = job && job->state.message ? job->state.state : NULL;

        if (state && state->phase == RB__PHASE__Succeeded) {
            sim->succeeded++;
            check_result(sim, &sim->jobs[j], state);
        } else if (state && state->phase == RB__PHASE__Failed) {
            sim->failed_jobs++;
            if (!state->reason || strncmp(state->reason, "it could not be started", 23) != 0)
                sim_fail(sim, "%s has failed: %s", sim->jobs[j].id,
                         state->reason ? state->reason : "-");
        } else {
            sim->others++; /* cancelled, or deleted */
        }
    }
}
