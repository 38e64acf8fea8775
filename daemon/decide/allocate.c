/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/decide/allocate_inside.h"

#include "daemon/facts/members.h"
#include "daemon/facts/restore.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLAME_MS = 2000,          /* a device that failed a job is left alone for so long, then for */
    BLAME_MOST_MS = 300000,   /* twice as long each time, up to this; */
    BLAME_MEMORY_MS = 600000, /* a failure is forgotten after this. */
};

bool rb_place_is(const struct rb_place *place, const char *node, uint32_t device)
{
    return place->device == device && !strcmp(place->node, node);
}

struct rb_slot *rb_pool_find(const struct rb_pool *pool, const char *node, uint32_t device)
{
    for (size_t i = 0; i < pool->n; i++)
        if (pool->slots[i].device->index == device && !strcmp(pool->slots[i].node->name, node))
            return &pool->slots[i];
    return NULL;
}

static void hold(struct rb_pool *pool, const char *node, uint32_t device, const char *job)
{
    struct rb_slot *slot = rb_pool_find(pool, node, device);

    if (slot)
        slot->holder = slot->had = job;
}

static void hold_what_jobs_have(struct rb_pool *pool)
{
    for (size_t j = 0; j < pool->facts->n_jobs; j++) {
        const struct rb_job_facts *job = &pool->facts->jobs[j];

        for (size_t c = 0; c < job->configurations.n; c++) {
            const Rb__Configuration *conf = job->configurations.at[c].configuration;

            if (rb_configuration_live(conf))
                for (size_t m = 0; m < conf->n_members; m++)
                    hold(pool, conf->members[m]->node, conf->members[m]->device, job->id);
        }
        for (size_t s = 0; s < pool->n; s++) {
            const struct rb_fact *report =
                rb_facts_report(job, pool->slots[s].node->name, pool->slots[s].device->index);

            if (report && report->worker->state != RB__WORKER_REPORT__STATE__DEAD &&
                report->worker->state != RB__WORKER_REPORT__STATE__FAILED)
                pool->slots[s].holder = pool->slots[s].had = job->id;
        }
    }
}

static void fill_pool(struct rb_pool *pool)
{
    const struct rb_facts *facts = pool->facts;
    size_t n = 0;

    for (size_t i = 0; i < facts->nodes.n; i++)
        n += facts->nodes.at[i].node->n_devices;
    pool->slots = RB_ARENA_NEW(pool->arena, struct rb_slot, n + 1);
    for (size_t i = 0; i < facts->nodes.n; i++) {
        const Rb__Node *node = facts->nodes.at[i].node;
        bool closed = node->leaving || rb_fact_find(&facts->cordons, node->name);

        for (size_t d = 0; d < node->n_devices; d++)
            pool->slots[pool->n++] = (struct rb_slot){.node = node,
                                                      .device = node->devices[d],
                                                      .closed = closed || node->devices[d]->sick};
    }
    hold_what_jobs_have(pool);
}

static bool pinned_away(const Rb__Wish *wish, const char *node, uint32_t device)
{
    char name[320];

    snprintf(name, sizeof(name), "%s:%" PRIu32, node, device);
    for (size_t i = 0; i < wish->n_devices; i++)
        if (!strcmp(wish->devices[i], name))
            return false;
    return wish->n_devices > 0;
}

/* A recovery names the places that it is without, and so does each recovery that follows until one
 * takes over: that is one failure.  A place that has just spoilt a recovery is named last. */
static bool is_blamed_anew(const Rb__Configuration *conf, const char *name, bool *was_lost)
{
    bool blamed = false, anew = false;

    for (size_t b = 0; b < conf->n_blamed; b++) {
        if (strcmp(conf->blamed[b], name) != 0)
            continue;
        blamed = true;
        anew |= !*was_lost || (conf->has_failed && b + 1 == conf->n_blamed);
    }
    *was_lost = (*was_lost || (blamed && !strcmp(conf->cause, "crash"))) &&
                !rb_configuration_took_over(conf);
    return anew;
}

uint64_t rb_pool_blamed_until(const struct rb_pool *pool, const struct rb_job_facts *job,
                              const char *node, uint32_t device)
{
    char name[320];
    uint64_t last = 0, wait = BLAME_MS / 2;
    bool was_lost = false;

    snprintf(name, sizeof(name), "%s:%" PRIu32, node, device);
    for (size_t c = 0; c < job->configurations.n; c++) {
        const Rb__Configuration *conf = job->configurations.at[c].configuration;
        uint64_t when = conf->has_failed ? conf->failed : conf->created;

        if (is_blamed_anew(conf, name, &was_lost) && when + BLAME_MEMORY_MS > pool->now) {
            wait = wait < BLAME_MOST_MS / 2 ? wait * 2 : BLAME_MOST_MS;
            last = when > last ? when : last;
        }
    }
    return last && last + wait > pool->now ? last + wait : 0;
}

bool rb_pool_fits(const struct rb_job_facts *job, const struct rb_slot *slot, bool *ret_foreign)
{
    const char *kind = job->job.job->spec->devices ? job->job.job->spec->devices->kind : NULL;

    *ret_foreign = false;
    if (kind && strcmp(kind, "any") != 0 && strcmp(kind, slot->device->kind) != 0)
        return false;
    if (pinned_away(job->wish.wish, slot->node->name, slot->device->index))
        return false;
    if (strcmp(rb_facts_class(slot->node, slot->device), job->job.job->numeric_class) != 0) {
        *ret_foreign = true;
        return false;
    }
    return true;
}

bool rb_share_has(const struct rb_share *share, const char *node, uint32_t device)
{
    for (size_t i = 0; i < share->n; i++)
        if (rb_place_is(&share->places[i], node, device))
            return true;
    return false;
}

uint32_t rb_share_want(const struct rb_job_facts *job)
{
    const Rb__DevicesSpec *devices = job->job.job->spec->devices;
    uint32_t want = job->wish.wish->want;

    if (devices && want > devices->max)
        want = devices->max;
    return want ? want : 1;
}

uint32_t rb_share_min(const struct rb_job_facts *job)
{
    const Rb__DevicesSpec *devices = job->job.job->spec->devices;

    return devices && devices->min ? devices->min : 1;
}

static void keep_members(struct rb_pool *pool, const struct rb_job_facts *job,
                         const Rb__Configuration *conf, struct rb_share *share)
{
    for (size_t m = 0; m < conf->n_members; m++) {
        const Rb__Member *member = conf->members[m];
        const Rb__WorkerReport *report;

        if (rb_member_life(pool->facts, job, conf, m, &report) == RB_LIFE_GONE ||
            rb_share_has(share, member->node, member->device))
            continue;
        if (rb_device_must_be_left(pool->facts, member->node, member->device))
            share->leaving++;
        else if (!pinned_away(job->wish.wish, member->node, member->device) &&
                 share->n < rb_share_want(job))
            share->places[share->n++] = (struct rb_place){member->node, member->device};
    }
}

static void keep_what_it_has(struct rb_pool *pool, const struct rb_job_facts *job,
                             struct rb_share *share)
{
    const struct rb_fact *active = rb_facts_configuration(job, job->state.state->active);
    const struct rb_fact *next = rb_facts_configuration(job, job->state.state->next);
    size_t most = (active ? active->configuration->n_members : 0) +
                  (next ? next->configuration->n_members : 0) + pool->n;

    share->places = RB_ARENA_NEW(pool->arena, struct rb_place, most + 1);
    if (active)
        keep_members(pool, job, active->configuration, share);
    if (next && rb_configuration_live(next->configuration))
        keep_members(pool, job, next->configuration, share);
    share->kept = share->n;
}

static void count_free(struct rb_pool *pool, const struct rb_job_facts *job, struct rb_share *share)
{
    bool foreign;

    for (size_t s = 0; s < pool->n; s++) {
        const struct rb_slot *slot = &pool->slots[s];

        if (!rb_pool_fits(job, slot, &foreign)) {
            share->foreign += foreign;
            continue;
        }
        share->fitting++;
        share->free += !slot->closed && !slot->holder;
    }
}

static bool uses_node(const struct rb_share *share, const char *node)
{
    for (size_t i = 0; i < share->n; i++)
        if (!strcmp(share->places[i].node, node))
            return true;
    return false;
}

/* No job has the device, or the job itself has it, for what it prepares. */
static bool to_be_had(const struct rb_job_facts *job, const struct rb_share *share,
                      const struct rb_slot *slot)
{
    const struct rb_fact *next = rb_facts_configuration(job, job->state.state->next);

    if (!slot->holder)
        return !slot->closed;
    if (!next || slot->heir || strcmp(slot->holder, job->id) != 0 ||
        rb_share_has(share, slot->node->name, slot->device->index) || slot->closed)
        return false;
    for (size_t m = 0; m < next->configuration->n_members; m++)
        if (next->configuration->members[m]->device == slot->device->index &&
            !strcmp(next->configuration->members[m]->node, slot->node->name))
            return rb_configuration_live(next->configuration);
    return false;
}

/* The next device to take: first of all one on `first_node`, then one that the job prepares
 * already, then one on a node in use, then any. */
static struct rb_slot *choose(struct rb_pool *pool, const struct rb_job_facts *job,
                              struct rb_share *share, const char *first_node, bool only_there)
{
    struct rb_slot *best = NULL;
    int best_rank = 0;
    bool foreign;

    for (size_t s = 0; s < pool->n; s++) {
        struct rb_slot *slot = &pool->slots[s];
        int rank = 1 + uses_node(share, slot->node->name);
        uint64_t until;

        if (!to_be_had(job, share, slot) || !rb_pool_fits(job, slot, &foreign))
            continue;
        if (slot->holder)
            rank = 3;
        if (first_node && !strcmp(slot->node->name, first_node))
            rank = 4;
        else if (only_there)
            continue;
        until = rb_pool_blamed_until(pool, job, slot->node->name, slot->device->index);
        if (until) {
            if (until < share->wake_ms)
                share->wake_ms = until;
            continue;
        }
        if (rank > best_rank) {
            best = slot;
            best_rank = rank;
        }
    }
    return best;
}

static bool is_foreign(const struct rb_pool *pool, const struct rb_job_facts *job, const char *node)
{
    bool any = false;

    for (size_t s = 0; s < pool->n; s++) {
        bool foreign;

        if (strcmp(pool->slots[s].node->name, node) != 0)
            continue;
        if (rb_pool_fits(job, &pool->slots[s], &foreign))
            return false;
        any |= foreign;
    }
    return any;
}

static void give_back(struct rb_pool *pool, const struct rb_place *place)
{
    struct rb_slot *slot = rb_pool_find(pool, place->node, place->device);

    slot->holder = slot->had;
}

/* Take free devices until the share has `upto`; `whole`: or none at all. */
static void take(struct rb_pool *pool, const struct rb_job_facts *job, struct rb_share *share,
                 size_t upto, bool whole)
{
    size_t before = share->n;
    bool local = false, fresh = !job->state.state->active && !share->kept;
    const Rb__Checkpoint *source = fresh ? rb_restore_source(job, pool->arena, &local) : NULL;

    while (share->n < upto) {
        bool there = source && !uses_node(share, source->node);
        struct rb_slot *slot =
            choose(pool, job, share, there ? source->node : NULL, there && local);

        if (!slot) {
            if (there && local) {
                share->needs = source->node;
                share->needs_foreign = is_foreign(pool, job, source->node);
                share->needs_gone = !rb_fact_find(&pool->facts->nodes, source->node);
            }
            break;
        }
        slot->holder = job->id;
        share->places[share->n++] = (struct rb_place){slot->node->name, slot->device->index};
    }
    if (whole && share->n < upto)
        while (share->n > before) {
            share->n--;
            give_back(pool, &share->places[share->n]);
        }
}

static bool wants_devices(const struct rb_job_facts *job)
{
    if (!job->job.message || !job->wish.message || !job->state.message || !job->job.job->spec)
        return false;
    return !rb_phase_final(job->state.state->phase) && !job->wish.wish->paused &&
           !job->wish.wish->cancelled && !job->wish.wish->deleted;
}

static int by_turn(const void *left, const void *right)
{
    const Rb__Job *a = ((const struct rb_claimant *)left)->job->job.job;
    const Rb__Job *b = ((const struct rb_claimant *)right)->job->job.job;

    if (a->spec->priority != b->spec->priority)
        return a->spec->priority > b->spec->priority ? -1 : 1;
    if (a->created != b->created)
        return a->created < b->created ? -1 : 1;
    return strcmp(a->id, b->id);
}

/* Each job in turn gets its min; then each in turn gets up to what it wants. */
static void serve(struct rb_pool *pool, struct rb_claimant *claimants, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct rb_claimant *each = &claimants[i];

        take(pool, each->job, each->share, rb_share_min(each->job), true);
        if (each->share->n < rb_share_min(each->job))
            rb_pool_make_room(pool, claimants, n, each);
    }
    for (size_t i = 0; i < n; i++) {
        const struct rb_claimant *each = &claimants[i];

        if (each->share->n < rb_share_min(each->job))
            continue;
        take(pool, each->job, each->share, rb_share_want(each->job), false);
        if (each->share->n < rb_share_want(each->job))
            rb_pool_bequeath(pool, claimants, n, each, rb_share_want(each->job) - each->share->n);
    }
}

struct rb_share *rb_allocate(const struct rb_facts *facts, uint64_t now_ms, struct rb_arena *arena)
{
    struct rb_pool pool = {.facts = facts, .now = now_ms, .arena = arena};
    struct rb_share *shares = RB_ARENA_NEW(arena, struct rb_share, facts->n_jobs + 1);
    struct rb_claimant *claimants = RB_ARENA_NEW(arena, struct rb_claimant, facts->n_jobs + 1);
    size_t n = 0;

    fill_pool(&pool);
    for (size_t j = 0; j < facts->n_jobs; j++) {
        shares[j].wake_ms = UINT64_MAX;
        shares[j].taken = "";
        if (!wants_devices(&facts->jobs[j]))
            continue;
        keep_what_it_has(&pool, &facts->jobs[j], &shares[j]);
        count_free(&pool, &facts->jobs[j], &shares[j]);
        claimants[n++] = (struct rb_claimant){&facts->jobs[j], &shares[j]};
    }
    qsort(claimants, n, sizeof(*claimants), by_turn);
    for (size_t i = 0; i < n; i++) /* before shares are made: what jobs have, not will have */
        if (claimants[i].share->n < rb_share_want(claimants[i].job))
            rb_pool_tell_taken(&pool, &claimants[i]);
    serve(&pool, claimants, n);
    return shares;
}
