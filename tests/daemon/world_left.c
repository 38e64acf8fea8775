/* SPDX-License-Identifier: Apache-2.0 */
/* Deaths, as agents hear of them, and what is left then: members go there without asking anyone. */
#include "world_inside.h"

#include "daemon/facts/contingency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct world_left *world_left_of(struct world *world, const struct worker *w)
{
    for (size_t i = 0; i < world->n_lefts && i < WORLD_LEFTS; i++) {
        struct world_left *left = &world->lefts[i];

        for (size_t m = 0; left->conf->number == w->active && m < left->conf->n_members; m++)
            if (!strcmp(left->job, w->job) && !strcmp(left->conf->members[m]->worker, w->name))
                return left;
    }
    return NULL;
}

void world_tell_deaths(struct world *world, size_t n)
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
        if (!strcmp(world->lefts[i].job, job->id) && world_same_members(world->lefts[i].conf, conf))
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

bool world_go_to_left(struct world *world, size_t n, const struct rb_job_facts *job)
{
    struct rb_arena arena = {0};
    const Rb__Configuration *found = find_left(world, n, job, &arena);

    for (size_t m = 0; found && m < found->n_members; m++) {
        struct worker *w = world_serving(world, job->id, found, m);

        if (strcmp(found->members[m]->node, world->nodes[n].name) != 0 || !w || !w->alive ||
            w->saves || w->active >= found->number || w->go == found->number ||
            w->unready == found->number)
            continue;
        keep_left(world, job, found);
        assert_true(w->go < found->number); /* the worker was not told to go elsewhere meanwhile */
        if (world->unready_one_in && !world_random(world, world->unready_one_in))
            w->unready = found->number;
        else
            w->go = found->number;
        w->dirty = true;
    }
    rb_arena_done(&arena);
    return found != NULL;
}
