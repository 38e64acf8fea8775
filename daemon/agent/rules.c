/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/rules_inside.h"

#include "daemon/facts/contingency.h"

#include <string.h>

/* ---- Configurations -------------------------------------------------------------------------- */

/* The process of ours that serves as this rank; n where there is none. */
static size_t find_worker(const struct rb_rules *rules, const struct rb_job_facts *job,
                          const Rb__Configuration *configuration, size_t rank)
{
    const struct rb_agent_view *view = rules->view;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (!strcmp(worker->job, job->id) &&
            rb_rules_serves(rules, configuration, rank, worker->device, worker->worker,
                            worker->spawned_for))
            return w;
    }
    return view->n;
}

static bool can_be_told(const struct rb_agent_worker *worker)
{
    return worker->connected && !worker->gone && !worker->left;
}

/* A fresh process for a member, unless one was spawned already, or another still has the device. */
static void spawn(struct rb_rules *rules, const struct rb_job_facts *job,
                  const Rb__Configuration *configuration, size_t rank)
{
    const struct rb_agent_view *view = rules->view;
    const Rb__Member *member = configuration->members[rank];
    const struct rb_fact *report = rb_facts_report(job, view->node, member->device);
    if (member->worker || configuration->state != RB__CONFIGURATION__STATE__PREPARING)
        return;
    if (report && report->worker->spawned_for == configuration->number)
        return; /* it was here and is gone: the coordinator will decide anew */
    for (size_t w = 0; w < view->n; w++)
        if (view->workers[w].device == member->device && !view->workers[w].gone)
            return; /* of whatever job: facts may not know of it yet */
    if (rb_rules_spawning(rules, member->device))
        return;
    struct rb_agent_action *action = rb_rules_act(rules, RB_AGENT_SPAWN, job);
    action->device = member->device;
    action->configuration = configuration;
}

static bool have_blob(struct rb_rules *rules, const struct rb_job_facts *job, const char *digest)
{
    const struct rb_agent_view *view = rules->view;
    if (view->has_blob(digest, view->context))
        return true;
    for (size_t i = 0; i < rules->actions->n; i++)
        if (rules->actions->at[i].kind == RB_AGENT_FETCH &&
            !strcmp(rules->actions->at[i].text, digest))
            return false;
    struct rb_agent_action *action = rb_rules_act(rules, RB_AGENT_FETCH, job);
    action->text = digest;
    action->node = job->job.job->node;
    return false;
}

/* Is every member there, with an address? */
static bool all_met(const struct rb_job_facts *job, const Rb__Configuration *configuration)
{
    for (size_t rank = 0; rank < configuration->n_members; rank++) {
        const struct rb_fact *report = rb_facts_member(job, configuration, rank);
        if (!report || !report->worker->n_addresses ||
            report->worker->state == RB__WORKER_REPORT__STATE__DEAD ||
            report->worker->state == RB__WORKER_REPORT__STATE__FAILED)
            return false;
    }
    return true;
}

static void configure(struct rb_rules *rules, const struct rb_job_facts *job,
                      const Rb__Configuration *configuration, size_t rank, size_t w)
{
    /* Ask for both blobs at once. */
    bool model = have_blob(rules, job, job->job.job->model);
    bool weights = !configuration->members[rank]->restores || configuration->restore ||
                   have_blob(rules, job, job->job.job->weights);
    if (!model || !weights || !all_met(job, configuration))
        return;
    struct rb_agent_action *action = rb_rules_act_on(rules, RB_AGENT_CONFIGURE, job, w);
    action->configuration = configuration;
    action->rank = rank;
    action->foreseen = configuration->left_of != 0;
}

static void go(struct rb_rules *rules, const struct rb_job_facts *job, size_t w, uint32_t number)
{
    rb_rules_act_on(rules, RB_AGENT_GO, job, w)->number = number;
}

/* A process tells of the newest configuration only.  Numbers rise, so for a process that was given
 * a later one this one is nothing new. */
static bool has_heard(const struct rb_agent_worker *worker, uint32_t number)
{
    return worker->configured >= number || worker->ready >= number || worker->unready >= number;
}

/* What is left after a death has a lower number than a configuration that was prepared beside, of
 * which the process may have heard.  A higher number counts only where it is a spare one: then a
 * later loss has taken the process further. */
static void tend_survivor(struct rb_rules *rules, const struct rb_job_facts *job,
                          const Rb__Configuration *configuration, size_t rank, size_t w)
{
    const struct rb_agent_worker *worker = &rules->view->workers[w];
    uint32_t number = configuration->number, last = number + configuration->spare;
    bool further = worker->configured > number && worker->configured <= last;
    bool heard =
        worker->configured == number || worker->ready == number || worker->unready == number;
    if (!heard && !further)
        configure(rules, job, configuration, rank, w);
    else if (worker->ready == number && worker->went != number)
        go(rules, job, w, number);
}

static void tend_member(struct rb_rules *rules, const struct rb_job_facts *job,
                        const Rb__Configuration *configuration, size_t rank)
{
    size_t w = find_worker(rules, job, configuration, rank);
    if (w == rules->view->n) {
        spawn(rules, job, configuration, rank);
        return;
    }
    const struct rb_agent_worker *worker = &rules->view->workers[w];
    uint32_t number = configuration->number;
    if (!can_be_told(worker) || worker->active >= number)
        return;
    if (configuration->left_of)
        tend_survivor(rules, job, configuration, rank, w);
    else if (!has_heard(worker, number))
        configure(rules, job, configuration, rank, w);
    else if (configuration->state != RB__CONFIGURATION__STATE__PREPARING &&
             worker->ready == number && worker->went < number)
        go(rules, job, w, number);
}

/* Those that train in the old configuration and are not in the new one flip too: they leave. */
static void tell_leavers(struct rb_rules *rules, const struct rb_job_facts *job,
                         const Rb__Configuration *configuration)
{
    const struct rb_agent_view *view = rules->view;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (!strcmp(worker->job, job->id) && can_be_told(worker) && worker->active &&
            worker->active < configuration->number && worker->went < configuration->number &&
            !rb_rules_member_of(rules, configuration, worker->device, worker->worker,
                                worker->spawned_for))
            go(rules, job, w, configuration->number);
    }
}

static void tell_abandoned(struct rb_rules *rules, const struct rb_job_facts *job,
                           const Rb__Configuration *configuration, const char *reason)
{
    const struct rb_agent_view *view = rules->view;
    uint32_t number = configuration->number;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (strcmp(worker->job, job->id) || !can_be_told(worker) || worker->abandoned == number ||
            worker->active == number || (worker->configured != number && worker->ready != number))
            continue;
        struct rb_agent_action *action = rb_rules_act_on(rules, RB_AGENT_ABANDON, job, w);
        action->number = number;
        action->text = reason;
    }
}

/* ---- Deaths ---------------------------------------------------------------------------------- */

/* What is left of the active configuration, as far as we know, if facts do not have it. */
static const Rb__Configuration *find_left(const struct rb_rules *rules,
                                          const struct rb_job_facts *job)
{
    const struct rb_agent_view *view = rules->view;
    const struct rb_fact *active =
        job->state.message ? rb_facts_configuration(job, job->state.state->active) : NULL;
    const char **dead = RB_ARENA_NEW(rules->arena, const char *, view->n + view->n_deaths + 1);
    const char **holders = RB_ARENA_NEW(rules->arena, const char *, view->n + 1);
    struct rb_contingency_known known = {.dead = dead, .holders = holders};
    if (!active)
        return NULL;
    uint32_t number = active->configuration->number;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (strcmp(worker->job, job->id))
            continue;
        if (worker->gone)
            dead[known.n_dead++] = worker->worker;
        else if (worker->active)
            holders[known.n_holders++] = worker->worker;
        if (!worker->gone && worker->went > number &&
            worker->went <= number + active->configuration->spare)
            known.committed = true;
    }
    for (size_t i = 0; i < view->n_deaths; i++)
        if (!strcmp(view->deaths[i].job, job->id))
            dead[known.n_dead++] = view->deaths[i].worker;
    return rb_contingency_next(job, &known, rules->arena);
}

/* Our members go to what is left at once.  A configuration that prepares beside can be flipped to
 * no more. */
static void tend_left(struct rb_rules *rules, const struct rb_job_facts *job,
                      const Rb__Configuration *left)
{
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *beside = job->configurations.at[i].configuration;
        bool over = beside->state == RB__CONFIGURATION__STATE__ABANDONED;
        if ((over || rb_configuration_live(beside)) && beside->number > left->left_of &&
            beside->left_of != left->left_of)
            tell_abandoned(rules, job, beside, "a worker was lost");
    }
    for (size_t rank = 0; rank < left->n_members; rank++)
        if (!strcmp(left->members[rank]->node, rules->view->node))
            tend_member(rules, job, left, rank);
}

/* ---- All ------------------------------------------------------------------------------------- */

static void tend_job(struct rb_rules *rules, const struct rb_job_facts *job)
{
    const Rb__Configuration *left = find_left(rules, job);
    if (left) {
        tend_left(rules, job, left);
        return;
    }
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *configuration = job->configurations.at[i].configuration;
        if (configuration->state == RB__CONFIGURATION__STATE__ABANDONED)
            tell_abandoned(rules, job, configuration, configuration->reason);
    }
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *configuration = job->configurations.at[i].configuration;
        if (!rb_configuration_live(configuration))
            continue;
        for (size_t rank = 0; rank < configuration->n_members; rank++)
            if (!strcmp(configuration->members[rank]->node, rules->view->node))
                tend_member(rules, job, configuration, rank);
        if (configuration->state == RB__CONFIGURATION__STATE__GO)
            tell_leavers(rules, job, configuration);
    }
}

void rb_agent_decide(const struct rb_agent_view *view, struct rb_arena *arena,
                     struct rb_agent_actions *ret_actions)
{
    struct rb_rules rules = {view, arena, ret_actions};
    *ret_actions = (struct rb_agent_actions){.wake_ms = UINT64_MAX};
    for (size_t i = 0; i < view->facts->n_jobs; i++) {
        const struct rb_job_facts *job = &view->facts->jobs[i];
        if (job->job.message)
            tend_job(&rules, job);
        rb_rules_tend_reports(&rules, job);
    }
    for (size_t w = 0; w < view->n; w++)
        rb_rules_tend_worker(&rules, w);
}
