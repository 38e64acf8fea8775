/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/roster.h"

#include "base/arena.h"

#include <stdlib.h>

/* Some train, all of these in one configuration, and all others are fresh. */
static bool is_possible(const struct rb_role *roles, uint32_t size)
{
    uint32_t term = 0;

    for (uint32_t r = 0; r < size; r++) {
        if (!roles[r].term && !roles[r].fresh)
            return false;
        if (roles[r].term && term && roles[r].term != term)
            return false;
        if (roles[r].term)
            term = roles[r].term;
    }
    return term != 0;
}

bool rb_roster_make(const struct rb_role *roles, uint32_t size, struct rb_roster *ret_roster)
{
    struct rb_roster roster = {0};

    if (!is_possible(roles, size))
        return false;
    roster.sources = rb_alloc(size * sizeof *roster.sources);
    roster.newcomers = rb_alloc(size * sizeof *roster.newcomers);
    roster.cores = rb_alloc(size * sizeof *roster.cores);
    for (uint32_t r = 0; r < size; r++)
        if (roles[r].term) {
            roster.sources[roster.n_sources++] = r;
        } else {
            roster.cores[roster.n_newcomers] = roles[r].core;
            roster.newcomers[roster.n_newcomers++] = r;
        }
    *ret_roster = roster;
    return true;
}

void rb_roster_done(struct rb_roster *roster)
{
    free(roster->sources);
    free(roster->newcomers);
    free(roster->cores);
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

uint32_t rb_roster_giver(const struct rb_roster *roster, size_t block, uint32_t newcomer)
{
    return (uint32_t)((block + newcomer) % roster->n_sources);
}

size_t rb_roster_first(const struct rb_roster *roster, uint32_t source, uint32_t newcomer)
{
    size_t sources = roster->n_sources;

    return (source + sources - newcomer % sources) % sources;
}

size_t rb_roster_share(const struct rb_roster *roster, uint32_t source, uint32_t newcomer,
                       size_t blocks)
{
    size_t first = rb_roster_first(roster, source, newcomer);

    return first < blocks ? (blocks - first - 1) / roster->n_sources + 1 : 0;
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
