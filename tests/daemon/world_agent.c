/* SPDX-License-Identifier: Apache-2.0 */
/* Agents that spawn workers, tell them where to go, report and dismiss them. */
#include "world_inside.h"

#include "daemon/facts/members.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void report(struct world *world, struct worker *w)
{
    struct world_left *left = world_left_of(world, w);
    char *without[RB_COUNT(left->without)];
    struct rb_writes writes = {0};
    Rb__WorkerReport value = RB__WORKER_REPORT__INIT;
    Rb__Checkpoint saved = RB__CHECKPOINT__INIT;
    const struct rb_job_facts *job = world_job(world, w->job);

    w->dirty = false;
    if (!job || !job->job.message)
        return;
    value.worker = w->name;
    value.state = w->state;
    value.has_pid = 1;
    value.has_ready = value.has_active = value.has_level = value.has_unready = 1;
    value.ready = w->ready;
    value.active = w->active;
    value.level = w->level;
    value.unready = w->unready;
    value.has_first_step = 1;
    value.first_step = w->first;
    value.has_spawned_for = 1;
    value.spawned_for = w->spawned_for;
    value.has_microbatch_us = w->microbatch_us != 0;
    value.microbatch_us = w->microbatch_us;
    value.has_unreadable = value.unreadable = w->unreadable;
    value.has_unsaved = value.unsaved = w->unsaved;
    value.reason = w->unsaved ? (char *)"no room" : w->unready ? (char *)"no will" : NULL;
    for (size_t i = 0; left && i < left->n_without; i++)
        without[i] = left->without[i];
    value.without = without;
    value.n_without = left ? left->n_without : 0;
    saved.step = w->saved;
    saved.path = (char *)"/park";
    saved.node = w->node;
    value.saved = w->has_saved ? &saved : NULL;
    rb_writes_put(&writes, RB_ANY_REVISION, &value.base, "jobs/%s/workers/%s:%u", w->job, w->node,
                  w->device);
    world_commit(world, &writes);
}

static bool spoken_of(const struct rb_job_facts *job, const struct worker *w)
{
    if (!job || !job->state.message)
        return false;
    if (job->state.state->saver && !strcmp(job->state.state->saver, w->name))
        return true;
    for (size_t c = 0; c < job->configurations.n; c++) {
        const Rb__Configuration *conf = job->configurations.at[c].configuration;

        bool counts = rb_configuration_live(conf) ||
                      (w->active == conf->number && rb_configuration_given_up(job, conf));

        for (size_t m = 0; counts && m < conf->n_members; m++) {
            const Rb__Member *member = conf->members[m];

            if (!strcmp(member->node, w->node) && member->device == w->device &&
                (member->worker ? !strcmp(member->worker, w->name)
                                : w->spawned_for == conf->number))
                return true;
        }
    }
    return false;
}

static void forget(struct world *world, struct worker *w)
{
    const struct rb_job_facts *job = world_job(world, w->job);
    const struct rb_fact *fact = job ? rb_facts_report(job, w->node, w->device) : NULL;
    struct rb_writes writes = {0};

    if (fact && !strcmp(fact->worker->worker, w->name)) {
        rb_writes_delete(&writes, RB_ANY_REVISION, "%s", fact->key);
        world_commit(world, &writes);
    }
    *w = world->workers[--world->n_workers];
}

/* As in daemon/agent/rules_processes.c. */
static bool time_is_over(struct world *world, const struct rb_job_facts *job,
                         const struct worker *w)
{
    const struct rb_facts *facts = rb_mirror_facts(world->mirror);
    const struct rb_fact *active = rb_facts_configuration(job, job->state.state->active);

    return w->active && active && !job->state.state->saver &&
           world->now >= rb_node_deadline(facts, w->node) &&
           rb_members_staying(facts, job, active->configuration) >=
               job->job.job->spec->devices->min;
}

/* A process that is told to save and leave tries until it can, or is told to stay, frozen. */
static void tend_saver(struct world *world, struct worker *w, bool is_saver)
{
    if (is_saver && w->level >= 0)
        w->saves = true;
    if (w->saves && world->full) {
        w->dirty |= !w->unsaved;
        w->unsaved = true;
    } else if (w->saves && (is_saver || !world_random(world, 4))) {
        w->has_saved = true;
        w->unsaved = false;
        w->saved = w->level;
        world_kill(world, w);
    }
    if (w->alive && w->saves && !is_saver) {
        w->saves = w->unsaved = false;
        world_freeze(w);
    }
}

static void tend_worker(struct world *world, struct worker *w)
{
    const struct rb_job_facts *job = world_job(world, w->job);
    const Rb__JobState *state = job ? job->state.state : NULL;

    if (w->alive && (!spoken_of(job, w) || time_is_over(world, job, w)))
        world_kill(world, w);
    else if (w->alive)
        tend_saver(world, w, state && state->saver && !strcmp(state->saver, w->name));
    if (w->alive && !w->saves && w->unsaved && !world->full) { /* the end is tried again */
        w->has_saved = w->dirty = true;
        w->unsaved = false;
    }
    if (w->alive && w->state == RB__WORKER_REPORT__STATE__STARTING) {
        w->state = RB__WORKER_REPORT__STATE__IDLE;
        w->dirty = true;
    }
}

static void serve(struct world *world, const char *id, const Rb__Configuration *conf, size_t m)
{
    struct worker *w = world_serving(world, id, conf, m);

    if (!w && !conf->members[m]->worker && conf->state == RB__CONFIGURATION__STATE__PREPARING) {
        for (size_t i = 0; i < world->n_workers; i++)
            if (world->workers[i].alive &&
                !strcmp(world->workers[i].node, conf->members[m]->node) &&
                world->workers[i].device == conf->members[m]->device)
                return; /* the device is still in use */
        assert_true(world->n_workers < WORLD_WORKERS);
        w = &world->workers[world->n_workers++];
        memset(w, 0, sizeof(*w));
        snprintf(w->name, sizeof(w->name), "w%zu", ++world->spawned);
        snprintf(w->job, sizeof(w->job), "%s", id);
        snprintf(w->node, sizeof(w->node), "%s", conf->members[m]->node);
        w->device = conf->members[m]->device;
        w->spawned_for = conf->number;
        w->alive = true;
        w->level = w->first = -1;
        w->dirty = true;
        return;
    }
    if (!w || !w->alive || w->saves || w->state == RB__WORKER_REPORT__STATE__STARTING)
        return;
    if (conf->state == RB__CONFIGURATION__STATE__PREPARING && w->ready < conf->number &&
        w->unready < conf->number) {
        for (size_t i = 0; i < conf->n_members; i++) {
            const struct rb_fact *peer = rb_facts_member(world_job(world, id), conf, i);

            if (!peer || peer->worker->state == RB__WORKER_REPORT__STATE__STARTING)
                return;
        }
        if (world->unready_one_in && !world_random(world, world->unready_one_in))
            w->unready = conf->number;
        else
            w->ready = conf->number;
        w->dirty = true;
    }
}

/* Go goes to the members of the next configuration and of the active one. */
static void tell_go(struct world *world, const struct world_node *node, const char *id,
                    const Rb__Configuration *conf)
{
    for (size_t i = 0; i < world->n_workers; i++) {
        struct worker *w = &world->workers[i];

        if (w->alive && !w->saves && !strcmp(w->job, id) && !strcmp(w->node, node->name) &&
            w->go < conf->number)
            w->go = conf->number;
    }
}

static void tend_job(struct world *world, size_t n, const struct rb_job_facts *job)
{
    struct world_node *node = &world->nodes[n];

    if (!job->job.message || world_go_to_left(world, n, job))
        return;
    for (size_t c = 0; c < job->configurations.n; c++) {
        const Rb__Configuration *conf = job->configurations.at[c].configuration;

        if (conf->state == RB__CONFIGURATION__STATE__GO)
            tell_go(world, node, job->id, conf);
        for (size_t m = 0; m < conf->n_members && rb_configuration_live(conf); m++)
            if (!strcmp(conf->members[m]->node, node->name))
                serve(world, job->id, conf, m);
    }
}

static void tend_jobs(struct world *world, size_t n)
{
    for (size_t j = 0; j < rb_mirror_facts(world->mirror)->n_jobs; j++)
        tend_job(world, n, &rb_mirror_facts(world->mirror)->jobs[j]);
}

static void report_all(struct world *world, size_t n)
{
    for (size_t i = world->n_workers; i-- > 0;) {
        struct worker *w = &world->workers[i];

        if (!strcmp(w->node, world->nodes[n].name) && w->dirty &&
            (w->alive || !world->slow || !world_random(world, 3)))
            report(world, w);
    }
}

void world_agent(struct world *world, size_t n)
{
    struct world_node *node = &world->nodes[n];

    if (!node->up)
        return;
    world_tell_deaths(world, n);
    if (world_random(world, 2)) /* etcd may be slower than all that */
        tend_jobs(world, n);
    for (size_t i = 0; i < world->n_workers; i++)
        if (!strcmp(world->workers[i].node, node->name))
            tend_worker(world, &world->workers[i]);
    report_all(world, n);
    for (size_t i = world->n_workers; i-- > 0;) {
        struct worker *w = &world->workers[i];

        if (!strcmp(w->node, node->name) && !w->alive && !spoken_of(world_job(world, w->job), w))
            forget(world, w);
    }
    tend_jobs(world, n);
    report_all(world, n);
}
