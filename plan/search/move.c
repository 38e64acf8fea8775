/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/search/move.h"

#include "base/arena.h"
#include "plan/compile/footprint.h"
#include "plan/replicas.h"
#include "plan/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* By block, whether `rank` holds it. */
static void find_held(const Rb__Plan *plan, uint32_t rank, size_t blocks, bool *ret_held)
{
    memset(ret_held, !plan->n_shards, blocks * sizeof *ret_held);
    for (size_t i = 0; i < plan->n_shards; i++) {
        const Rb__Shard *shard = plan->shards[i];

        for (size_t r = 0; r < shard->n_ranks; r++)
            if (shard->ranks[r] == rank)
                memset(ret_held + shard->first_block, true, shard->n_blocks * sizeof *ret_held);
    }
}

/* NULL: the model's sizes make no sense. */
static Rb__Plan *new_plan(const Rb__Model *model, const struct rb_cluster *cluster,
                          struct rb_move_side side)
{
    RB_CLEANUP(rb_freep) uint32_t *nodes = rb_alloc(side.ranks * sizeof *nodes);
    struct rb_replicas how = {
        .copies = side.copies, .blocks = model->n_blocks, .ranks = side.ranks, .nodes = nodes};
    Rb__Plan *plan = NULL;

    for (uint32_t r = 0; r < side.ranks; r++)
        nodes[r] = cluster->devices[r].node;
    if (rb_schedule_data(model, side.ranks, &plan, NULL))
        return NULL;
    rb_replicas_place(&how, model, plan);
    return plan;
}

/* Bytes that `rank` of `after` lacks: the moments of blocks that it does not hold yet, and all
 * weights where it is new. */
static double lacking(const Rb__Model *model, const Rb__Plan *before, const Rb__Plan *after,
                      uint32_t rank)
{
    size_t n = model->n_blocks;
    RB_CLEANUP(rb_freep) bool *has = rb_alloc(n + 1), *needs = rb_alloc(n + 1);
    double moments = rb_footprint_moments(model), bytes = 0;
    bool fresh = rank >= before->n_ranks;

    if (!fresh)
        find_held(before, rank, n, has);
    find_held(after, rank, n, needs);
    for (size_t b = 0; b < n; b++) {
        double arrays = fresh + (needs[b] && !has[b] ? moments : 0);

        bytes += 4 * arrays * (double)model->blocks[b]->count;
    }
    return bytes + (fresh ? (double)model->fixed_bytes : 0);
}

/* Bytes a second into a device from the others. */
static double inflow(const struct rb_cluster *cluster, uint32_t rank)
{
    const struct rb_cluster_node *node = &cluster->nodes[cluster->devices[rank].node];
    double inside = node->inside.bandwidth, network = node->network.bandwidth;
    bool alone = cluster->devices[0].node != cluster->devices[rank].node;

    return alone ? (network > 0 ? network : INFINITY) : inside > 0 ? inside : INFINITY;
}

void rb_move_price(const Rb__Model *model, const struct rb_cluster *cluster,
                   struct rb_move_side before, struct rb_move_side after, double step,
                   struct rb_move *ret_move)
{
    Rb__Plan *from = new_plan(model, cluster, before), *to = new_plan(model, cluster, after);
    bool sharded = from && to && (from->n_shards || to->n_shards);
    struct rb_move move = {0};

    for (uint32_t r = 0; from && to && r < after.ranks; r++) {
        double bytes = lacking(model, from, to, r), seconds = bytes / inflow(cluster, r);

        if (!sharded && r >= before.ranks) { /* the sums of each step that ends meanwhile */
            double steps = 1 + (step > 0 ? floor(seconds / step) : 0);

            bytes += 4 * steps * (double)model->state_elements;
            seconds = bytes / inflow(cluster, r);
        }
        move.bytes += bytes;
        move.seconds = fmax(move.seconds, seconds);
    }
    move.stall = sharded ? move.seconds : 0;
    if (from)
        rb__plan__free_unpacked(from, NULL);
    if (to)
        rb__plan__free_unpacked(to, NULL);
    *ret_move = move;
}
