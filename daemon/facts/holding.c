/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facts/holding.h"

#include <string.h>

/* The first rank on a node stands for the node. */
static uint32_t node_of(const Rb__Configuration *configuration, size_t rank)
{
    for (size_t r = 0; r < rank; r++)
        if (!strcmp(configuration->members[r]->node, configuration->members[rank]->node))
            return (uint32_t)r;
    return (uint32_t)rank;
}

struct rb_replicas rb_holding_of(const Rb__Job *job, const Rb__Configuration *configuration,
                                 struct rb_arena *arena)
{
    uint32_t *nodes = RB_ARENA_NEW(arena, uint32_t, configuration->n_members + 1);

    for (size_t r = 0; r < configuration->n_members; r++)
        nodes[r] = node_of(configuration, r);
    return (struct rb_replicas){
        .copies = configuration->replicas,
        .blocks = job->blocks,
        .ranks = (uint32_t)configuration->n_members,
        .nodes = nodes,
    };
}

bool rb_holding_sharded(const Rb__Job *job, const Rb__Configuration *configuration)
{
    return rb_replicas_sharded(&(struct rb_replicas){
        .copies = configuration->replicas,
        .blocks = job->blocks,
        .ranks = (uint32_t)configuration->n_members,
    });
}
