/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that vote, flip, freeze and open; agents that spawn, tell, report and dismiss them. */
#include "world.h"

#include "daemon/facts/contingency.h"
#include "daemon/facts/members.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- Workers ----------------------------------------------------------------------------------*/

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

/* The process that serves a member, by the world's own knowledge. */
static struct worker *serving(struct world *world, const char *job, const Rb__Configuration *conf,
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

/* There for its peers: it lives, and is not on its way out. */
static bool all_alive(struct world *world, const char *job, const Rb__Configuration *conf)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = serving(world, job, conf, m);

        if (!w || !w->alive || w->saves)
            return false;
    }
    return true;
}

static void freeze(struct worker *w)
{
    w->state = RB__WORKER_REPORT__STATE__FROZEN;
    w->dirty = true;
}

/* All members wait in `conf`: level up and start it. */
static void open_configuration(struct world *world, const char *job, const Rb__Configuration *conf)
{
    int64_t highest = -1, from = conf->restore ? conf->restore->step : 0;
    bool first = !strcmp(conf->cause, "start") || !strcmp(conf->cause, "resume");

    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = serving(world, job, conf, m);

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
        struct worker *w = serving(world, job, conf, m);

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
        struct worker *w = serving(world, job, conf, m);

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
        struct worker *w = serving(world, job, conf, m);

        if (w->state != RB__WORKER_REPORT__STATE__TRAINING || w->active != conf->number)
            return;
        go = w->go < go ? w->go : go;
    }
    for (size_t m = 0; m < conf->n_members; m++) {
        struct worker *w = serving(world, job, conf, m);

        if (w->level < steps)
            w->level++;
        if (w->level == steps) {
            w->state = RB__WORKER_REPORT__STATE__DONE;
            w->has_saved = m == 0 && !world->full;
            w->unsaved = m == 0 && world->full;
            w->saved = w->level;
            w->dirty = true;
        } else if (go != UINT32_MAX && go > w->active) {
            w->state = RB__WORKER_REPORT__STATE__IDLE; /* on its way */
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
        struct worker *w = serving(world, id, conf, m);

        if (w && w->alive && !w->saves && w->active == conf->number &&
            w->state == RB__WORKER_REPORT__STATE__TRAINING)
            freeze(w);
        if (w && w->alive && w->opening == conf->number && w->level >= 0)
            freeze(w);
        if (w && w->alive && w->opening == conf->number)
            w->opening = 0;
    }
}

static bool same_members(const Rb__Configuration *a, const Rb__Configuration *b)
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

        if (!strcmp(world->lefts[i].job, id) && (!fact || !same_members(left, fact->configuration)))
            train(world, job, left);
    }
}

/* ---- Agents -----------------------------------------------------------------------------------*/

/* Which of what was foreseen does it train in? */
static struct world_left *left_of(struct world *world, const struct worker *w)
{
    for (size_t i = 0; i < world->n_lefts && i < WORLD_LEFTS; i++) {
        struct world_left *left = &world->lefts[i];

        for (size_t m = 0; left->conf->number == w->active && m < left->conf->n_members; m++)
            if (!strcmp(left->job, w->job) && !strcmp(left->conf->members[m]->worker, w->name))
                return left;
    }
    return NULL;
}

static void report(struct world *world, struct worker *w)
{
    struct world_left *left = left_of(world, w);
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

/* Told to save and leave it tries until it can, or is told to stay, frozen. */
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
        freeze(w);
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
    struct worker *w = serving(world, id, conf, m);

    if (!w && !conf->members[m]->worker && conf->state == RB__CONFIGURATION__STATE__PREPARING) {
        for (size_t i = 0; i < world->n_workers; i++)
            if (world->workers[i].alive &&
                !strcmp(world->workers[i].node, conf->members[m]->node) &&
                world->workers[i].device == conf->members[m]->device)
                return; /* the device is in use still */
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

/* Go is for the members of the next configuration and of the active one. */
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

/* ---- Deaths -----------------------------------------------------------------------------------*/

/* An agent knows of its own at once, and tells the others, one now, one later. */
static void tell_deaths(struct world *world, size_t n)
{
    for (size_t i = 0; i < world->n_workers; i++) {
        struct worker *w = &world->workers[i];
        size_t other = world_random(world, world->n_nodes);

        if (w->alive || strcmp(w->node, world->nodes[n].name) != 0)
            continue;
        w->known_dead |= 1u << n;
        if (world->nodes[other].up)
            w->known_dead |= 1u << other;
    }
}

static struct world_left *keep_left(struct world *world, const struct rb_job_facts *job,
                                    const Rb__Configuration *conf)
{
    const Rb__Configuration *base = rb_contingency_base(job, conf);
    struct rb_arena arena = {0};
    struct world_left *left;
    const char **without;
    uint8_t bytes[4096];

    for (size_t i = 0; i < world->n_lefts && i < WORLD_LEFTS; i++)
        if (!strcmp(world->lefts[i].job, job->id) && same_members(world->lefts[i].conf, conf))
            return &world->lefts[i];
    left = &world->lefts[world->n_lefts % WORLD_LEFTS];
    if (world->n_lefts++ >= WORLD_LEFTS)
        rb__configuration__free_unpacked(left->conf, NULL);
    snprintf(left->job, sizeof(left->job), "%s", job->id);
    assert_true(rb__configuration__get_packed_size(conf) <= sizeof(bytes));
    left->conf = rb__configuration__unpack(NULL, rb__configuration__pack(conf, bytes), bytes);
    left->n_without = rb_contingency_without(base, conf, &arena, &without);
    assert_true(left->n_without <= RB_COUNT(left->without));
    for (size_t i = 0; i < left->n_without; i++)
        snprintf(left->without[i], sizeof(left->without[i]), "%s", without[i]);
    rb_arena_done(&arena);
    return left;
}

/* What this node's agent thinks is left of the active configuration. */
static const Rb__Configuration *find_left(struct world *world, size_t n,
                                          const struct rb_job_facts *job, struct rb_arena *arena)
{
    const Rb__Configuration *active = world_active(world, job->id);
    const char *dead[WORLD_WORKERS], *holders[WORLD_WORKERS];
    struct rb_contingency_known known = {.dead = dead, .holders = holders};

    for (size_t i = 0; active && i < world->n_workers; i++) {
        struct worker *w = &world->workers[i];
        bool own = !strcmp(w->node, world->nodes[n].name);

        if (strcmp(w->job, job->id) != 0)
            continue;
        if (!w->alive && w->known_dead & 1u << n)
            dead[known.n_dead++] = w->name;
        if (w->alive && own && w->active)
            holders[known.n_holders++] = w->name;
        known.committed |=
            w->alive && own && w->go > active->number && w->go <= active->number + active->spare;
    }
    return active ? rb_contingency_next(job, &known, arena) : NULL;
}

/* Its own members go there, without asking anyone; what prepares beside is left alone. */
static bool go_to_left(struct world *world, size_t n, const struct rb_job_facts *job)
{
    struct rb_arena arena = {0};
    const Rb__Configuration *found = find_left(world, n, job, &arena);

    for (size_t m = 0; found && m < found->n_members; m++) {
        struct worker *w = serving(world, job->id, found, m);

        if (strcmp(found->members[m]->node, world->nodes[n].name) != 0 || !w || !w->alive ||
            w->saves || w->active >= found->number || w->go == found->number ||
            w->unready == found->number)
            continue;
        keep_left(world, job, found);
        assert_true(w->go < found->number); /* nobody was told to go elsewhere meanwhile */
        if (world->unready_one_in && !world_random(world, world->unready_one_in))
            w->unready = found->number;
        else
            w->go = found->number;
        w->dirty = true;
    }
    rb_arena_done(&arena);
    return found != NULL;
}

static void tend_job(struct world *world, size_t n, const struct rb_job_facts *job)
{
    struct world_node *node = &world->nodes[n];

    if (!job->job.message || go_to_left(world, n, job))
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
    tell_deaths(world, n);
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
