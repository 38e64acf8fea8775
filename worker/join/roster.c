/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/roster.h"

#include "base/arena.h"

#include <stdlib.h>

/* Some members train, all of these in one configuration, and all others are fresh. */
static bool is_possible(const struct rb_role *roles, uint32_t size)
{
    bool laps = false, fresh = false;
    uint32_t term = 0;

    for (uint32_t r = 0; r < size; r++) {
        if (!roles[r].term && !roles[r].fresh)
            return false;
        if (roles[r].term && term && roles[r].term != term)
            return false;
        if (roles[r].term)
            term = roles[r].term;
        laps |= roles[r].term && roles[r].laps;
        fresh |= !roles[r].term;
    }
    return term != 0 && !(laps && fresh);
}

/* held: by rank * blocks + block. */
static bool has(const struct rb_roster *roster, const uint8_t *held, uint32_t source, size_t block)
{
    return !held || held[roster->sources[source] * roster->blocks + block];
}

/* A source that shall hold the block anyway; else the sources share what is to be taken, in
 * runs. */
static int32_t choose_heir(const struct rb_roster *roster, const uint8_t *shall, size_t block)
{
    for (uint32_t s = 0; shall && s < roster->n_sources; s++)
        if (shall[roster->sources[s] * roster->blocks + block])
            return (int32_t)s;
    return (int32_t)(block * roster->n_sources / roster->blocks);
}

static void choose_givers(struct rb_roster *roster, const uint8_t *held, size_t block)
{
    uint32_t holders = 0;

    for (uint32_t s = 0; s < roster->n_sources; s++)
        holders += has(roster, held, s, block);
    for (uint32_t i = 0; i < roster->n_newcomers; i++) {
        uint32_t turn = holders ? (uint32_t)((block + i) % holders) : 0, giver = 0;

        while (holders && (!has(roster, held, giver, block) || turn--))
            giver++;
        roster->givers[i * roster->blocks + block] =
            holders ? giver : (uint32_t)roster->heirs[block];
    }
}

static void list_members(struct rb_roster *roster, const struct rb_role *roles, uint32_t size)
{
    roster->sources = rb_alloc(size * sizeof *roster->sources);
    roster->newcomers = rb_alloc(size * sizeof *roster->newcomers);
    roster->cores = rb_alloc(size * sizeof *roster->cores);
    for (uint32_t r = 0; r < size; r++)
        if (roles[r].term) {
            roster->sources[roster->n_sources++] = r;
        } else {
            roster->cores[roster->n_newcomers] = roles[r].core;
            roster->newcomers[roster->n_newcomers++] = r;
        }
}

bool rb_roster_make(const struct rb_role *roles, uint32_t size, const uint8_t *held,
                    const uint8_t *shall, size_t blocks, struct rb_roster *ret_roster)
{
    struct rb_roster roster = {.blocks = blocks};

    if (!is_possible(roles, size))
        return false;
    list_members(&roster, roles, size);
    roster.heirs = rb_alloc((blocks + 1) * sizeof *roster.heirs);
    roster.givers = rb_alloc((roster.n_newcomers * blocks + 1) * sizeof *roster.givers);
    for (size_t b = 0; b < blocks; b++) {
        bool held_here = false;

        for (uint32_t s = 0; s < roster.n_sources; s++)
            held_here |= has(&roster, held, s, b);
        roster.heirs[b] = held_here ? -1 : choose_heir(&roster, shall, b);
        choose_givers(&roster, held, b);
    }
    *ret_roster = roster;
    return true;
}

void rb_roster_done(struct rb_roster *roster)
{
    free(roster->sources);
    free(roster->newcomers);
    free(roster->cores);
    free(roster->heirs);
    free(roster->givers);
    *roster = (struct rb_roster){0};
}

static int find(const uint32_t *ranks, uint32_t n, uint32_t rank)
{
    for (uint32_t i = 0; i < n; i++)
        if (ranks[i] == rank)
            return (int)i;
    return -1;
}

int rb_roster_source(const struct rb_roster *roster, uint32_t rank)
{
    return find(roster->sources, roster->n_sources, rank);
}

int rb_roster_newcomer(const struct rb_roster *roster, uint32_t rank)
{
    return find(roster->newcomers, roster->n_newcomers, rank);
}

size_t rb_roster_next(const struct rb_roster *roster, uint32_t source, uint32_t newcomer,
                      size_t from)
{
    while (from < roster->blocks && roster->givers[newcomer * roster->blocks + from] != source)
        from++;
    return from;
}

uint32_t rb_roster_other(const struct rb_roster *roster, uint32_t newcomer)
{
    return newcomer % roster->n_sources;
}

int64_t rb_stream_level(const struct rb_stream *streams, size_t n)
{
    int64_t level = n ? streams[0].level : -1;

    for (size_t i = 0; i < n; i++) {
        if (streams[i].missing)
            return -1;
        if (streams[i].level < level)
            level = streams[i].level;
    }
    return level;
}
