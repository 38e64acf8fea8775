/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of this node: for how long each is waited for, which are needed no more, and what facts
 * still say of those that are gone. */
#include "daemon/agent/rules_inside.h"

#include "daemon/facts/members.h"

#include <string.h>

enum {
    LEAVE_MS = 10000, /* a dismissed worker ends within this, or is killed */
    START_MS = 30000, /* a fresh one says Hello within this */
    SILENT_S = 10,    /* a living one answers within this */
    STUCK_MS = 3000,  /* a step is late by then, */
    STUCK_STEPS = 4,  /* or by so many times what the last one took */
};

static void wake(struct rb_rules *rules, uint64_t ms)
{
    if (ms < rules->actions->wake_ms)
        rules->actions->wake_ms = ms;
}

static bool is_saver(const struct rb_job_facts *job, const char *worker)
{
    return job && job->state.message && job->state.state->saver &&
           !strcmp(job->state.state->saver, worker);
}

static void kill_for(struct rb_rules *rules, const struct rb_job_facts *job, size_t w,
                     const char *why)
{
    rb_rules_act_on(rules, RB_AGENT_KILL, job, w)->text = why;
}

/* A worker was told to end, or has not begun: how long may that take? */
static void watch_over(struct rb_rules *rules, const struct rb_job_facts *job, size_t w)
{
    const struct rb_agent_worker *worker = &rules->view->workers[w];
    uint64_t until = worker->left ? worker->left + LEAVE_MS : worker->waited + START_MS;
    if (rules->view->now_ms >= until)
        kill_for(rules, job, w, worker->left ? NULL : "it did not say hello within 30 s");
    else
        wake(rules, until);
}

/* The node must have been left by now, and enough others have the job's state.  Where too few have
 * the state, the coordinator has it saved. */
static bool time_is_over(struct rb_rules *rules, const struct rb_job_facts *job,
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

/* Do steps of the configuration need the process?  A configuration that was given up may have been
 * flipped to before, and a worker that waits for a newcomer there has not said so. */
static bool trains_in(const struct rb_rules *rules, const struct rb_job_facts *job,
                      const Rb__Configuration *conf, const struct rb_agent_worker *worker)
{
    bool runs = rb_configuration_live(conf) && conf->state != RB__CONFIGURATION__STATE__PREPARING;
    return (runs || rb_configuration_given_up(job, conf)) &&
           rb_rules_member_of(rules, conf, worker->device, worker->worker, worker->spawned_for);
}

/* Other nodes whose leases have ended, with members that the process trains with. */
static const char **nodes_away(const struct rb_rules *rules, const struct rb_job_facts *job,
                               const struct rb_agent_worker *worker, size_t *ret_n)
{
    const struct rb_agent_view *view = rules->view;
    const char **names = RB_ARENA_NEW(rules->arena, const char *, rb_facts_count_members(job) + 1);

    *ret_n = 0;
    for (size_t c = 0; c < job->configurations.n; c++) {
        const Rb__Configuration *conf = job->configurations.at[c].configuration;

        if (!trains_in(rules, job, conf, worker))
            continue;
        for (size_t m = 0; m < conf->n_members; m++) {
            const char *node = conf->members[m]->node;

            if (strcmp(node, view->node) && !rb_fact_find(&view->facts->nodes, node))
                names[(*ret_n)++] = node;
        }
    }
    return names;
}

static bool is_silent(const struct rb_agent_view *view, const char *node)
{
    for (size_t i = 0; i < view->n_silent; i++)
        if (!strcmp(view->silent[i], node))
            return true;
    return false;
}

/* Does the worker wait in vain?  A step may take long, and a node that has lost its lease may well
 * train on: each such node is asked. */
static void look_for_stuck(struct rb_rules *rules, const struct rb_job_facts *job, size_t w)
{
    const struct rb_agent_worker *worker = &rules->view->workers[w];
    uint64_t late =
        worker->stepped +
        (worker->step_ms * STUCK_STEPS > STUCK_MS ? worker->step_ms * STUCK_STEPS : STUCK_MS);
    size_t n = 0, silent = 0;
    const char **away = worker->stepped ? nodes_away(rules, job, worker, &n) : NULL;

    if (!n)
        return;
    if (rules->view->now_ms < late) {
        wake(rules, late);
        return;
    }
    while (silent < n && !is_silent(rules->view, away[silent]))
        silent++;
    if (silent < n)
        rb_rules_act_on(rules, RB_AGENT_FREEZE, job, w)->node = away[silent];
    else
        for (size_t i = 0; i < n; i++)
            rb_rules_act(rules, RB_AGENT_ASK, job)->node = away[i];
}

void rb_rules_tend_worker(struct rb_rules *rules, size_t w)
{
    const struct rb_agent_view *view = rules->view;
    const struct rb_agent_worker *worker = &view->workers[w];
    const struct rb_job_facts *job = rb_facts_job(view->facts, worker->job);
    bool wanted = rb_rules_needed(rules, job, worker->device, worker->worker, worker->spawned_for,
                                  worker->active);
    if (worker->gone) {
        const struct rb_agent_action *next = rb_rules_spawning(rules, worker->device);
        if (!wanted && !(next && next->job == job))
            rb_rules_act_on(rules, RB_AGENT_FORGET, job, w);
    } else if (worker->stopped) {
        kill_for(rules, job, w, worker->stopped);
    } else if (worker->connected && worker->unanswered >= SILENT_S) {
        kill_for(rules, job, w, "it did not answer for 10 s");
    } else if (wanted && time_is_over(rules, job, worker)) {
        kill_for(rules, job, w, "its node had to be left by now");
    } else if (wanted && worker->connected && worker->saving && !is_saver(job, worker->worker)) {
        rb_rules_act_on(rules, RB_AGENT_STAY, job, w);
    } else if (worker->saving && is_saver(job, worker->worker)) {
        /* Saving takes as long as it takes, for the state may be nowhere else.  But the saver may
         * be stuck in a vote that it hears out first. */
        look_for_stuck(rules, job, w);
    } else if (worker->left || (wanted && !worker->connected)) {
        watch_over(rules, job, w);
    } else if (wanted && is_saver(job, worker->worker)) {
        rb_rules_act_on(rules, RB_AGENT_LEAVE_SAVING, job, w);
    } else if (!wanted) {
        rb_rules_act_on(rules, worker->connected ? RB_AGENT_LEAVE : RB_AGENT_KILL, job, w);
    } else {
        look_for_stuck(rules, job, w);
    }
}

static bool have_worker(const struct rb_rules *rules, const char *job, const char *name)
{
    for (size_t w = 0; w < rules->view->n; w++)
        if (!strcmp(rules->view->workers[w].job, job) &&
            !strcmp(rules->view->workers[w].worker, name))
            return true;
    return false;
}

/* "NODE:DEVICE" with our node: the device; -1: another's. */
static int64_t own_device(const struct rb_rules *rules, const char *name)
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

void rb_rules_tend_reports(struct rb_rules *rules, const struct rb_job_facts *job)
{
    for (size_t i = 0; i < job->workers.n; i++) {
        const struct rb_fact *report = &job->workers.at[i];
        int64_t device = own_device(rules, report->name);
        if (device < 0 || have_worker(rules, job->id, report->worker->worker))
            continue;
        bool wanted = rb_rules_needed(rules, job, (uint32_t)device, report->worker->worker,
                                      report->worker->spawned_for, report->worker->active);
        if (wanted && ended(report->worker))
            continue;
        rb_rules_act(rules, wanted ? RB_AGENT_REPORT_DEAD : RB_AGENT_REPORT_DELETE, job)->report =
            report;
    }
}
