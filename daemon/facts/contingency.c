/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/contingency.h"

#include "daemon/facts/fit.h"
#include "daemon/facts/holding.h"
#include "daemon/facts/members.h"
#include "daemon/facts/shares.h"

#include <string.h>

/* ---- One configuration ----------------------------------------------------------------------- */

/* May these survivors go on by themselves?  Whatever else that depends on belongs here. */
static bool may_go_on(const Rb__Configuration *base, size_t survivors, uint32_t min)
{
    size_t lost = base->n_members - survivors;

    return survivors >= 1 && survivors >= min && lost <= base->spare;
}

/* `last` without one of its ranks.  A member that stays keeps its microbatches, if they are its own
 * alone.  Each member that is left holds more, so it may have to compute again what `last` kept. */
static Rb__Configuration *without_rank(const Rb__Job *job, const Rb__Configuration *last,
                                       size_t rank, struct rb_arena *arena)
{
    Rb__Configuration *next = RB_ARENA_NEW(arena, Rb__Configuration, 1);

    rb__configuration__init(next);
    next->has_replicas = last->has_replicas;
    next->replicas = last->replicas;
    next->has_pipeline = last->has_pipeline;
    next->pipeline = last->pipeline;
    next->schedule = last->schedule;
    next->has_hypergraph = last->has_hypergraph;
    next->hypergraph = last->hypergraph;
    next->has_steals = last->has_steals;
    next->steals = last->steals;
    next->members = RB_ARENA_NEW(arena, Rb__Member *, last->n_members);
    for (size_t m = 0; m < last->n_members; m++) {
        Rb__Member *member = RB_ARENA_NEW(arena, Rb__Member, 1);

        if (m == rank)
            continue;
        rb__member__init(member);
        member->node = last->members[m]->node;
        member->device = last->members[m]->device;
        member->worker = last->members[m]->worker;
        next->members[next->n_members++] = member;
    }
    next->recomputes = last->recomputes || rb_fit_recomputes(job, next);
    next->has_recomputes = next->recomputes;
    rb_shares_after(last, job->microbatches, next, arena);
    return next;
}

Rb__Configuration *rb_contingency_make(const Rb__Job *job, const Rb__Configuration *base,
                                       const bool *dead, uint32_t min, struct rb_arena *arena)
{
    const Rb__Configuration *last = base;
    Rb__Configuration *left = NULL;
    size_t lost = 0;

    for (size_t m = 0; m < base->n_members; m++) {
        if (!base->members[m]->worker)
            return NULL; /* it never went */
        lost += dead[m];
    }
    if (!lost || !may_go_on(base, base->n_members - lost, min))
        return NULL;
    /* One after the other, by rank: with a later death most shares stay where they were. */
    for (size_t m = 0, gone = 0; m < base->n_members; m++)
        if (dead[m])
            last = left = without_rank(job, last, m - gone++, arena);
    left->number = base->number + (uint32_t)lost;
    left->state = RB__CONFIGURATION__STATE__GO;
    left->cause = rb_arena_string(arena, "crash");
    left->has_left_of = left->has_spare = 1;
    left->left_of = base->number;
    left->spare = base->spare - (uint32_t)lost;
    return left;
}

const Rb__Configuration *rb_contingency_base(const struct rb_job_facts *job,
                                             const Rb__Configuration *configuration)
{
    const struct rb_fact *fact;

    if (!configuration->left_of)
        return configuration;
    fact = rb_facts_configuration(job, configuration->left_of);
    return fact ? fact->configuration : NULL;
}

bool rb_contingency_descends(const Rb__Configuration *configuration, uint32_t number)
{
    uint32_t first = configuration->left_of ? configuration->left_of : configuration->number;

    return number >= first && number <= configuration->number;
}

size_t rb_contingency_without(const Rb__Configuration *base, const Rb__Configuration *configuration,
                              struct rb_arena *arena, const char ***ret_workers)
{
    const char **workers = RB_ARENA_NEW(arena, const char *, base->n_members + 1);
    size_t n = 0;

    for (size_t m = 0; m < base->n_members; m++)
        if (base->members[m]->worker &&
            !rb_configuration_names(configuration, base->members[m]->worker))
            workers[n++] = base->members[m]->worker;
    *ret_workers = workers;
    return n;
}

bool rb_contingency_entered(const Rb__WorkerReport *report, const Rb__Configuration *configuration,
                            const Rb__Configuration *base)
{
    if (report->active != configuration->number)
        return false;
    for (size_t i = 0; base && i < report->n_without; i++)
        if (rb_configuration_names(configuration, report->without[i]) &&
            rb_configuration_names(base, report->without[i]))
            return false;
    return true;
}

/* ---- A job ----------------------------------------------------------------------------------- */

static bool went(const Rb__Configuration *configuration)
{
    return configuration->went || configuration->state == RB__CONFIGURATION__STATE__GO ||
           rb_configuration_took_over(configuration);
}

/* Is there a newer configuration that may be where the job is now, or the coordinator's own answer
 * to a death? */
static bool overtaken(const struct rb_job_facts *job, const Rb__Configuration *base, bool committed)
{
    for (size_t i = job->configurations.n; i-- > 0;) {
        const Rb__Configuration *other = job->configurations.at[i].configuration;

        if (other->number <= base->number || other->left_of == base->number)
            continue;
        if ((went(other) && !committed) ||
            (rb_configuration_live(other) && !strcmp(other->cause, "crash")))
            return true;
    }
    return false;
}

/* Does a process train without this worker?  Then an agent had the proof. */
static bool is_done_without(const struct rb_job_facts *job, const Rb__Configuration *base,
                            const char *worker)
{
    for (size_t i = 0; i < job->workers.n; i++) {
        const Rb__WorkerReport *report = job->workers.at[i].worker;

        if (report->active <= base->number || report->active > base->number + base->spare)
            continue;
        for (size_t w = 0; w < report->n_without; w++)
            if (!strcmp(report->without[w], worker))
                return true;
    }
    return false;
}

static bool is_among(const char *const *workers, size_t n, const char *worker)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(workers[i], worker))
            return true;
    return false;
}

static bool is_dead(const struct rb_job_facts *job, const Rb__Configuration *base, size_t rank,
                    const Rb__Configuration *active, const struct rb_contingency_known *known)
{
    const char *worker = base->members[rank]->worker;

    return worker && ((active != base && !rb_configuration_names(active, worker)) ||
                      is_among(known->dead, known->n_dead, worker) ||
                      rb_member_gone(job, base, rank) || is_done_without(job, base, worker));
}

/* Is a member of `left` known to hold the state?  Otherwise there may be nothing to go on with. */
static bool has_state(const struct rb_job_facts *job, const Rb__Configuration *left,
                      const struct rb_contingency_known *known)
{
    for (size_t m = 0; m < left->n_members; m++) {
        const struct rb_fact *report = rb_facts_member(job, left, m);

        if ((report && rb_report_holds_state(report->worker)) ||
            is_among(known->holders, known->n_holders, left->members[m]->worker))
            return true;
    }
    return false;
}

/* Do the members of `left` have every block, by the placement of a configuration that they
 * opened? */
static bool have_all_of(const struct rb_job_facts *job, const Rb__Configuration *opened,
                        const Rb__Configuration *left, struct rb_arena *arena)
{
    struct rb_replicas how = rb_holding_of(job->job.job, opened, arena);
    bool *here = RB_ARENA_NEW(arena, bool, opened->n_members + 1);

    for (size_t m = 0; m < opened->n_members; m++)
        here[m] =
            opened->members[m]->worker && rb_configuration_names(left, opened->members[m]->worker);
    return rb_replicas_whole(&how, here);
}

/* By the placement of the base or of the active configuration; or of another one left of the base
 * that a member is in: what the member lacked was copied to it when that one was opened. */
static bool have_all(const struct rb_job_facts *job, const Rb__Configuration *base,
                     const Rb__Configuration *active, const Rb__Configuration *left,
                     struct rb_arena *arena)
{
    bool all = have_all_of(job, base, left, arena) || have_all_of(job, active, left, arena);
    bool *dead = RB_ARENA_NEW(arena, bool, base->n_members + 1);

    for (size_t m = 0; !all && m < left->n_members; m++) {
        const struct rb_fact *fact = rb_facts_member(job, left, m);
        const Rb__WorkerReport *report = fact ? fact->worker : NULL;
        const Rb__Configuration *opened;

        if (!report || report->active <= base->number ||
            report->active > base->number + base->spare)
            continue;
        for (size_t r = 0; r < base->n_members; r++)
            dead[r] =
                base->members[r]->worker && is_among((const char *const *)report->without,
                                                     report->n_without, base->members[r]->worker);
        opened = rb_contingency_make(job->job.job, base, dead, 1, arena);
        all = opened && have_all_of(job, opened, left, arena);
    }
    return all;
}

Rb__Configuration *rb_contingency_next(const struct rb_job_facts *job,
                                       const struct rb_contingency_known *known,
                                       struct rb_arena *arena)
{
    const Rb__JobState *state = job->state.state;
    const struct rb_fact *fact;
    const Rb__Configuration *active, *base;
    const Rb__DevicesSpec *devices;
    Rb__Configuration *left;
    bool *dead;

    if (!job->job.message || !state || state->phase != RB__PHASE__Running || state->saver)
        return NULL;
    fact = rb_facts_configuration(job, state->active);
    active = fact ? fact->configuration : NULL;
    base = active ? rb_contingency_base(job, active) : NULL;
    if (!base || !base->spare || overtaken(job, base, known->committed))
        return NULL;
    dead = RB_ARENA_NEW(arena, bool, base->n_members + 1);
    for (size_t m = 0; m < base->n_members; m++)
        dead[m] = is_dead(job, base, m, active, known);
    devices = job->job.job->spec ? job->job.job->spec->devices : NULL;
    left = rb_contingency_make(job->job.job, base, dead, devices ? devices->min : 1, arena);
    if (!left || left->number == active->number || rb_facts_configuration(job, left->number) ||
        !has_state(job, left, known) || !have_all(job, base, active, left, arena))
        return NULL;
    left->has_from = 1;
    left->from = active->number;
    return left;
}
