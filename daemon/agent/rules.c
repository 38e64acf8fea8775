/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/rules.h"

#include "daemon/facts/contingency.h"
#include "daemon/facts/members.h"

#include <string.h>

enum {
    LEAVE_MS = 10000, /* a dismissed worker ends within this, or is killed */
    SAVE_MS = 120000, /* one that saves first */
    START_MS = 30000, /* a fresh one says Hello within this */
    SILENT_S = 10,    /* a living one answers within this */
};

struct rules {
    const struct rb_agent_view *view;
    struct rb_arena *arena;
    struct rb_agent_actions *actions;
};

static struct rb_agent_action *act(struct rules *rules, enum rb_agent_action_kind kind,
                                   const struct rb_job_facts *job)
{
    struct rb_agent_actions *actions = rules->actions;
    if (actions->n == actions->room) {
        size_t room = actions->room ? actions->room * 2 : 16;
        struct rb_agent_action *more = RB_ARENA_NEW(rules->arena, struct rb_agent_action, room);
        if (actions->n)
            memcpy(more, actions->at, actions->n * sizeof(*more));
        actions->at = more;
        actions->room = room;
    }
    struct rb_agent_action *action = &actions->at[actions->n++];
    *action = (struct rb_agent_action){.kind = kind, .job = job};
    return action;
}

static void act_on(struct rules *rules, enum rb_agent_action_kind kind,
                   const struct rb_job_facts *job, size_t worker)
{
    act(rules, kind, job)->worker = worker;
}

static void wake(struct rules *rules, uint64_t ms)
{
    if (ms < rules->actions->wake_ms)
        rules->actions->wake_ms = ms;
}

/* ---- Who serves whom ------------------------------------------------------------------------- */

/* Is the process (named, spawned for a configuration, on a device of this node) this member? */
static bool serves(const Rb__Configuration *configuration, size_t rank, const char *node,
                   uint32_t device, const char *worker, uint32_t spawned_for)
{
    const Rb__Member *member = configuration->members[rank];
    if (strcmp(member->node, node) || member->device != device)
        return false;
    return member->worker ? !strcmp(member->worker, worker) : spawned_for == configuration->number;
}

static bool member_of(const struct rules *rules, const Rb__Configuration *configuration,
                      uint32_t device, const char *worker, uint32_t spawned_for)
{
    for (size_t rank = 0; rank < configuration->n_members; rank++)
        if (serves(configuration, rank, rules->view->node, device, worker, spawned_for))
            return true;
    return false;
}

/* Does a live configuration or the wish to park speak of this process? */
static bool needed(const struct rules *rules, const struct rb_job_facts *job, uint32_t device,
                   const char *worker, uint32_t spawned_for)
{
    if (!job || !job->job.message)
        return false;
    if (job->state.message && job->state.state->saver && !strcmp(job->state.state->saver, worker))
        return true;
    for (size_t i = 0; i < job->configurations.n; i++) {
        const Rb__Configuration *configuration = job->configurations.at[i].configuration;
        if (rb_configuration_live(configuration) &&
            member_of(rules, configuration, device, worker, spawned_for))
            return true;
    }
    return false;
}

/* The process of ours that serves as this rank; n where there is none. */
static size_t find_worker(const struct rules *rules, const struct rb_job_facts *job,
                          const Rb__Configuration *configuration, size_t rank)
{
    const struct rb_agent_view *view = rules->view;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (!strcmp(worker->job, job->id) && serves(configuration, rank, view->node, worker->device,
                                                    worker->worker, worker->spawned_for))
            return w;
    }
    return view->n;
}

static bool can_be_told(const struct rb_agent_worker *worker)
{
    return worker->connected && !worker->gone && !worker->left;
}

/* ---- Configurations -------------------------------------------------------------------------- */

/* A fresh process for a member, unless one was spawned already, or another still has the device. */
static void spawn(struct rules *rules, const struct rb_job_facts *job,
                  const Rb__Configuration *configuration, size_t rank)
{
    const struct rb_agent_view *view = rules->view;
    const Rb__Member *member = configuration->members[rank];
    const struct rb_fact *report = rb_facts_report(job, view->node, member->device);
    if (member->worker || configuration->state != RB__CONFIGURATION__STATE__PREPARING)
        return;
    if (report && report->worker->spawned_for == configuration->number)
        return; /* it has been and is gone: the coordinator will decide anew */
    for (size_t w = 0; w < view->n; w++)
        if (view->workers[w].device == member->device && !view->workers[w].gone)
            return; /* of whatever job: facts may not know of it yet */
    struct rb_agent_action *action = act(rules, RB_AGENT_SPAWN, job);
    action->device = member->device;
    action->configuration = configuration;
}

static bool have_blob(struct rules *rules, const struct rb_job_facts *job, const char *digest)
{
    const struct rb_agent_view *view = rules->view;
    if (view->has_blob(digest, view->context))
        return true;
    for (size_t i = 0; i < rules->actions->n; i++)
        if (rules->actions->at[i].kind == RB_AGENT_FETCH &&
            !strcmp(rules->actions->at[i].text, digest))
            return false;
    struct rb_agent_action *action = act(rules, RB_AGENT_FETCH, job);
    action->text = digest;
    action->node = job->job.job->node;
    return false;
}

/* Is everyone there, with an address? */
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

static void configure(struct rules *rules, const struct rb_job_facts *job,
                      const Rb__Configuration *configuration, size_t rank, size_t w)
{
    /* Ask for both blobs at once. */
    bool model = have_blob(rules, job, job->job.job->model);
    bool weights = !configuration->members[rank]->restores || configuration->restore ||
                   have_blob(rules, job, job->job.job->weights);
    if (!model || !weights || !all_met(job, configuration))
        return;
    struct rb_agent_action *action = act(rules, RB_AGENT_CONFIGURE, job);
    action->worker = w;
    action->configuration = configuration;
    action->rank = rank;
    action->foreseen = configuration->left_of != 0;
}

static void go(struct rules *rules, const struct rb_job_facts *job, size_t w, uint32_t number)
{
    act_on(rules, RB_AGENT_GO, job, w);
    rules->actions->at[rules->actions->n - 1].number = number;
}

/* Its number is lower than that of what was prepared beside.  A later loss has taken it further. */
static void tend_survivor(struct rules *rules, const struct rb_job_facts *job,
                          const Rb__Configuration *configuration, size_t rank, size_t w)
{
    const struct rb_agent_worker *worker = &rules->view->workers[w];
    uint32_t number = configuration->number, last = number + configuration->spare;
    bool further = worker->configured > number && worker->configured <= last;
    if (!further && worker->configured != number && worker->ready != number &&
        worker->unready != number)
        configure(rules, job, configuration, rank, w);
    else if (worker->ready == number && worker->went != number)
        go(rules, job, w, number);
}

static void tend_member(struct rules *rules, const struct rb_job_facts *job,
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
    else if (worker->configured < number && worker->ready < number && worker->unready < number)
        configure(rules, job, configuration, rank, w);
    else if (configuration->state != RB__CONFIGURATION__STATE__PREPARING &&
             worker->ready == number && worker->went < number)
        go(rules, job, w, number);
}

/* Those that train in the old configuration and are not in the new one flip too: they leave. */
static void tell_leavers(struct rules *rules, const struct rb_job_facts *job,
                         const Rb__Configuration *configuration)
{
    const struct rb_agent_view *view = rules->view;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (!strcmp(worker->job, job->id) && can_be_told(worker) && worker->active &&
            worker->active < configuration->number && worker->went < configuration->number &&
            !member_of(rules, configuration, worker->device, worker->worker, worker->spawned_for))
            go(rules, job, w, configuration->number);
    }
}

static void tell_abandoned(struct rules *rules, const struct rb_job_facts *job,
                           const Rb__Configuration *configuration, const char *reason)
{
    const struct rb_agent_view *view = rules->view;
    uint32_t number = configuration->number;
    for (size_t w = 0; w < view->n; w++) {
        const struct rb_agent_worker *worker = &view->workers[w];
        if (strcmp(worker->job, job->id) || !can_be_told(worker) || worker->abandoned == number ||
            worker->active == number || (worker->configured != number && worker->ready != number))
            continue;
        act_on(rules, RB_AGENT_ABANDON, job, w);
        rules->actions->at[rules->actions->n - 1].number = number;
        rules->actions->at[rules->actions->n - 1].text = reason;
    }
}

/* ---- Deaths ---------------------------------------------------------------------------------- */

/* What is left of the active configuration, as far as we know, if facts do not have it. */
static const Rb__Configuration *find_left(const struct rules *rules, const struct rb_job_facts *job)
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

/* Members of ours go to what is left at once.  What prepares beside can be flipped to no more. */
static void tend_left(struct rules *rules, const struct rb_job_facts *job,
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

static void tend_job(struct rules *rules, const struct rb_job_facts *job)
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

/* ---- Processes ------------------------------------------------------------------------------- */

static bool is_saver(const struct rb_job_facts *job, const char *worker)
{
    return job && job->state.message && job->state.state->saver &&
           !strcmp(job->state.state->saver, worker);
}

static void kill_for(struct rules *rules, const struct rb_job_facts *job, size_t w, const char *why)
{
    act_on(rules, RB_AGENT_KILL, job, w);
    rules->actions->at[rules->actions->n - 1].text = why;
}

/* One that was told to end, or has not begun: how long may that take? */
static void watch_over(struct rules *rules, const struct rb_job_facts *job, size_t w)
{
    const struct rb_agent_worker *worker = &rules->view->workers[w];
    uint64_t until = worker->left ? worker->left + (worker->saving ? SAVE_MS : LEAVE_MS)
                                  : worker->waited + START_MS;
    if (rules->view->now_ms >= until)
        kill_for(rules, job, w, worker->left ? NULL : "it did not say hello within 30 s");
    else
        wake(rules, until);
}

/* The node must have been left by now, and enough others have the job's state.  Where they have
 * not, the coordinator has it saved. */
static bool time_is_over(struct rules *rules, const struct rb_job_facts *job,
                         const struct rb_agent_worker *worker)
{
    const struct rb_agent_view *view = rules->view;
    uint64_t deadline = rb_node_deadline(view->facts, view->node);
    const struct rb_fact *active;
    const Rb__DevicesSpec *devices;
    uint32_t min;

    if (deadline == UINT64_MAX || !worker->active || !job || !job->job.message ||
        !job->state.message || !job->job.job->spec || job->state.state->saver)
        return false;
    if (view->unix_ms < deadline) {
        wake(rules, view->now_ms + (deadline - view->unix_ms));
        return false;
    }
    active = rb_facts_configuration(job, job->state.state->active);
    devices = job->job.job->spec->devices;
    min = devices && devices->min ? devices->min : 1;
    return active && rb_members_staying(view->facts, job, active->configuration) >= min;
}

static void tend_worker(struct rules *rules, size_t w)
{
    const struct rb_agent_view *view = rules->view;
    const struct rb_agent_worker *worker = &view->workers[w];
    const struct rb_job_facts *job = rb_facts_job(view->facts, worker->job);
    bool wanted = needed(rules, job, worker->device, worker->worker, worker->spawned_for);
    if (worker->gone) {
        if (!wanted)
            act_on(rules, RB_AGENT_FORGET, job, w);
    } else if (worker->stopped) {
        kill_for(rules, job, w, worker->stopped);
    } else if (worker->connected && worker->unanswered >= SILENT_S) {
        kill_for(rules, job, w, "it did not answer for 10 s");
    } else if (wanted && time_is_over(rules, job, worker)) {
        kill_for(rules, job, w, "its node had to be left by now");
    } else if (worker->left || (wanted && !worker->connected)) {
        watch_over(rules, job, w);
    } else if (wanted && is_saver(job, worker->worker)) {
        act_on(rules, RB_AGENT_LEAVE_SAVING, job, w);
    } else if (!wanted) {
        act_on(rules, worker->connected ? RB_AGENT_LEAVE : RB_AGENT_KILL, job, w);
    }
}

static bool have_worker(const struct rules *rules, const char *job, const char *name)
{
    for (size_t w = 0; w < rules->view->n; w++)
        if (!strcmp(rules->view->workers[w].job, job) &&
            !strcmp(rules->view->workers[w].worker, name))
            return true;
    return false;
}

/* "NODE:DEVICE" with our node: the device; -1: another's. */
static int64_t own_device(const struct rules *rules, const char *name)
{
    size_t length = strlen(rules->view->node);
    uint32_t device = 0;
    if (strncmp(name, rules->view->node, length) || name[length] != ':' || !name[length + 1])
        return -1;
    for (const char *digit = name + length + 1; *digit; digit++) {
        if (*digit < '0' || *digit > '9' || device > 1 << 20)
            return -1;
        device = device * 10 + (uint32_t)(*digit - '0');
    }
    return device;
}

static bool ended(const Rb__WorkerReport *report)
{
    return report->state == RB__WORKER_REPORT__STATE__DEAD ||
           report->state == RB__WORKER_REPORT__STATE__FAILED;
}

/* Reports under our name whose processes we do not have. */
static void tend_reports(struct rules *rules, const struct rb_job_facts *job)
{
    for (size_t i = 0; i < job->workers.n; i++) {
        const struct rb_fact *report = &job->workers.at[i];
        int64_t device = own_device(rules, report->name);
        if (device < 0 || have_worker(rules, job->id, report->worker->worker))
            continue;
        bool wanted = needed(rules, job, (uint32_t)device, report->worker->worker,
                             report->worker->spawned_for);
        if (wanted && ended(report->worker))
            continue;
        act(rules, wanted ? RB_AGENT_REPORT_DEAD : RB_AGENT_REPORT_DELETE, job)->report = report;
    }
}

void rb_agent_decide(const struct rb_agent_view *view, struct rb_arena *arena,
                     struct rb_agent_actions *ret_actions)
{
    struct rules rules = {view, arena, ret_actions};
    *ret_actions = (struct rb_agent_actions){.wake_ms = UINT64_MAX};
    for (size_t i = 0; i < view->facts->n_jobs; i++) {
        const struct rb_job_facts *job = &view->facts->jobs[i];
        if (job->job.message)
            tend_job(&rules, job);
        tend_reports(&rules, job);
    }
    for (size_t w = 0; w < view->n; w++)
        tend_worker(&rules, w);
}
