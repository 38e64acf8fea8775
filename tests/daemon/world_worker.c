/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that vote, flip, freeze and open. */
#include "world_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct worker *world_worker(struct world *world, const char *job, const char *node, uint32_t device)
{
    for (size_t i = 0; i < world->n_workers; i++) {
        struct worker *w = &world->workers[i];

        if (w->alive && !strcmp(w->job, job) && !strcmp(w->node, node) && w->device == device)
            return w;
    }
    return NULL;
}

void world_kill(struct world *world, struct worker *worker)
{
    (void)world;
    worker->alive = false;
    worker->state = RB__WORKER_REPORT__STATE__DEAD;
    worker->dirty = true;
}

struct worker *world_serving(struct world *world, const char *job, const Rb__Configuration *conf,
                             size_t m)
{
    const Rb__Member *member = conf->members[m];

    for (size_t i = 0; i < world->n_workers; i++) {
        struct worker *w = &world->workers[i];

        if (strcmp(w->job, job) != 0 || strcmp(w->node, member->node) != 0 ||
            w->device != member->device)
            continue;
        if (member->worker ? !strcmp(w->name, member->worker) : w->spawned_for == conf->number)
            return w;
    }
    return NULL;
}

/* Are all members there for their peers: alive, and not on their way out? */
static bool all_alive(struct world *world, const char *job, const Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, job, conf, m);

        if (!w || !w->alive || w->saves)
            return false;
    }
    return true;
}

void world_freeze(struct worker *w)
{
    w->state = RB__WORKER_REPORT__STATE__FROZEN;
    w->dirty = true;
}

/* All members wait in `conf`: bring them to one level and start it. */
static void open_configuration(struct world *world, const char *job, const Rb__Configuration *conf)
{
    int64_t highest = -1, from = conf->restore ? conf->restore->step : 0;
    bool first = !strcmp(conf->cause, "start") || !strcmp(conf->cause, "resume");

    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, job, conf, m);

        if (w->level > highest)
            highest = w->level;
    }
    if (highest < 0) {
        bool restores = false;

        assert_true(first); /* else the state of the job is lost without a word */
        for (size_t m = 0; m < conf->n_members; m++)
            restores |= conf->members[m]->restores;
        assert_true(restores);
        highest = from;
    }
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, job, conf, m);

        w->level = w->first = highest;
        world->n_entered +=
            conf->left_of && !rb_facts_configuration(world_job(world, job), conf->number);
        w->active = conf->number;
        w->opening = 0;
        w->state = !strcmp(conf->cause, "park") ? RB__WORKER_REPORT__STATE__FROZEN /* it stands */
                                                : RB__WORKER_REPORT__STATE__TRAINING;
        w->dirty = true;
    }
}

static bool all_opening(struct world *world, const char *job, const Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, job, conf, m);

        if (!w || !w->alive || w->opening != conf->number)
            return false;
    }
    return true;
}

/* A worker that does not train opens what it was told to go to. */
static void start_opening(struct world *world, const char *job)
{
    for (size_t i = 0; i < world->n_workers; i++) {
        struct worker *w = &world->workers[i];

        if (w->alive && !strcmp(w->job, job) && w->go > w->active && w->opening < w->go &&
            w->state != RB__WORKER_REPORT__STATE__TRAINING)
            w->opening = w->go;
    }
}

static void vote(struct world *world, const char *job, const Rb__Configuration *conf, int64_t steps)
{
    uint32_t go = UINT32_MAX;

    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, job, conf, m);

        if (w->state != RB__WORKER_REPORT__STATE__TRAINING || w->active != conf->number)
            return;
        go = w->go < go ? w->go : go;
    }
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, job, conf, m);

        if (w->level < steps)
            w->level++;
        if (w->level == steps) {
            w->state = RB__WORKER_REPORT__STATE__DONE;
            w->has_saved = m == 0 && !world->full;
            w->unsaved = m == 0 && world->full;
            w->saved = w->level;
            w->dirty = true;
        } else if (go != UINT32_MAX && go > w->active) {
            w->state = RB__WORKER_REPORT__STATE__IDLE; /* on its way there */
            w->opening = go;
        }
    }
}

static void train(struct world *world, const struct rb_job_facts *job,
                  const Rb__Configuration *conf)
{
    const char *id = job->id;
    bool alive = all_alive(world, id, conf);

    if (alive && all_opening(world, id, conf)) {
        open_configuration(world, id, conf);
        return;
    }
    if (alive) {
        vote(world, id, conf, job->job.job->steps);
        return;
    }
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = world_serving(world, id, conf, m);

        if (w && w->alive && !w->saves && w->active == conf->number &&
            w->state == RB__WORKER_REPORT__STATE__TRAINING)
            world_freeze(w);
        if (w && w->alive && w->opening == conf->number && w->level >= 0)
            world_freeze(w);
        if (w && w->alive && w->opening == conf->number)
            w->opening = 0;
    }
}

bool world_same_members(const Rb__Configuration *a, const Rb__Configuration *b)
{
    if (a->number != b->number || a->n_members != b->n_members)
        return false;
    for (size_t m = 0; m < a->n_members; m++)
        if (!a->members[m]->worker || !b->members[m]->worker ||
            strcmp(a->members[m]->worker, b->members[m]->worker) != 0)
            return false;
    return true;
}

void world_train(struct world *world, const char *id)
{
    const struct rb_job_facts *job = world_job(world, id);

    if (!job || !job->job.message)
        return;
    start_opening(world, id);
    for (size_t c = 0; c < job->configurations.n; c++)
        train(world, job, job->configurations.at[c].configuration);
    for (size_t i = 0; i < world->n_lefts && i < WORLD_LEFTS; i++) {
        const Rb__Configuration *left = world->lefts[i].conf;
        const struct rb_fact *fact = rb_facts_configuration(job, left->number);

        if (!strcmp(world->lefts[i].job, id) &&
            (!fact || !world_same_members(left, fact->configuration)))
            train(world, job, left);
    }
}
