/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/replicas.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "proto/needs.h"

#include <inttypes.h>
#include <stdlib.h>

bool rb_replicas_sharded(const struct rb_replicas *how)
{
    return how->copies && how->ranks > how->copies && how->blocks;
}

uint32_t rb_replicas_runs(const struct rb_replicas *how)
{
    if (!rb_replicas_sharded(how))
        return 0;
    return how->blocks < how->ranks ? (uint32_t)how->blocks : how->ranks;
}

/* ---- Which ranks -----------------------------------------------------------------------------*/

static uint32_t node_of(const struct rb_replicas *how, uint32_t rank)
{
    return how->nodes ? how->nodes[rank] : 0;
}

static bool several_nodes(const struct rb_replicas *how)
{
    for (uint32_t r = 1; r < how->ranks; r++)
        if (node_of(how, r) != node_of(how, 0))
            return true;
    return false;
}

/* The rank that has the fewest second copies so far; of several, the next behind the primary. */
static uint32_t choose_second(const struct rb_replicas *how, uint32_t primary, bool elsewhere,
                              const uint32_t *loads)
{
    uint32_t best = primary;

    for (uint32_t i = 1; i < how->ranks; i++) {
        uint32_t rank = (primary + i) % how->ranks;

        if (elsewhere && node_of(how, rank) == node_of(how, primary))
            continue;
        if (best == primary || loads[rank] < loads[best])
            best = rank;
    }
    return best;
}

void rb_replicas_seconds(const struct rb_replicas *how, uint32_t *ret_seconds)
{
    RB_CLEANUP(rb_freep) uint32_t *loads = rb_alloc(how->ranks * sizeof(*loads));
    uint32_t runs = rb_replicas_runs(how);
    bool elsewhere = several_nodes(how);

    for (uint32_t i = 0; i < runs; i++) {
        ret_seconds[i] = how->copies > 1 ? choose_second(how, i, elsewhere, loads) : i;
        loads[ret_seconds[i]]++;
    }
}

bool rb_replicas_whole(const struct rb_replicas *how, const bool *here)
{
    RB_CLEANUP(rb_freep) uint32_t *seconds = rb_alloc(how->ranks * sizeof(*seconds));
    uint32_t runs = rb_replicas_runs(how);

    for (uint32_t r = 0; !runs && r < how->ranks; r++)
        if (here[r])
            return true;
    rb_replicas_seconds(how, seconds);
    for (uint32_t i = 0; i < runs; i++)
        if (!here[i] && !here[seconds[i]])
            return false;
    return runs > 0;
}

void rb_replicas_text(const struct rb_replicas *how, struct rb_buffer *out)
{
    if (rb_replicas_sharded(how))
        rb_buffer_format(out, ", %" PRIu32 " replica%s of each block", how->copies,
                         how->copies == 1 ? "" : "s");
}

/* ---- Which blocks ----------------------------------------------------------------------------*/

/* Where run `run` begins: where its even part of the elements is in front of it, but so that no run
 * is empty.  There are at least as many blocks as runs. */
static uint64_t cut(const Rb__Model *model, uint32_t runs, uint32_t run, uint64_t after)
{
    uint64_t total = 0, before = 0, latest = model->n_blocks - (runs - run);
    uint64_t b = 0;

    if (!run)
        return 0;
    for (size_t i = 0; i < model->n_blocks; i++)
        total += model->blocks[i]->count;
    while (b < model->n_blocks && (before + model->blocks[b]->count / 2) * runs < total * run)
        before += model->blocks[b++]->count;
    b = b < after ? after : b;
    return b < latest ? b : latest;
}

static void add_shard(Rb__Plan *plan, uint64_t first, uint64_t end, uint32_t primary,
                      uint32_t second)
{
    Rb__Shard *shard = rb_alloc(sizeof(*shard));

    rb__shard__init(shard);
    shard->first_block = (uint32_t)first;
    shard->n_blocks = (uint32_t)(end - first);
    shard->ranks = rb_alloc(2 * sizeof(*shard->ranks));
    shard->ranks[shard->n_ranks++] = primary;
    if (second != primary)
        shard->ranks[shard->n_ranks++] = second;
    plan->shards[plan->n_shards++] = shard;
}

/* The stage that makes a gradient, the first of several; 0 where none does. */
static uint32_t first_stage(uint64_t gives)
{
    return gives ? (uint32_t)__builtin_ctzll(gives) : 0;
}

/* By block, its primary: the ranks of a stage share its blocks, in runs of about equally many
 * elements. */
static void find_primaries(const struct rb_replicas *how, const Rb__Model *model,
                           const Rb__Plan *plan, uint32_t *ret_primaries)
{
    RB_CLEANUP(rb_freep) uint64_t *gives = rb_alloc((model->n_blocks + 1) * sizeof(*gives));
    RB_CLEANUP(rb_freep) uint64_t *totals = rb_alloc(plan->stages * sizeof(*totals));
    RB_CLEANUP(rb_freep) uint64_t *before = rb_alloc(plan->stages * sizeof(*before));
    RB_CLEANUP(rb_freep) uint32_t *first = rb_alloc(plan->stages * sizeof(*first));
    RB_CLEANUP(rb_freep) uint32_t *ranks = rb_alloc(plan->stages * sizeof(*ranks));

    rb_needs_find(model, plan, gives, NULL);
    for (uint32_t r = how->ranks; r-- > 0;) {
        first[plan->ranks[r]->stage] = r;
        ranks[plan->ranks[r]->stage]++;
    }
    for (size_t b = 0; b < model->n_blocks; b++)
        totals[first_stage(gives[b])] += model->blocks[b]->count;
    for (size_t b = 0; b < model->n_blocks; b++) {
        uint32_t stage = first_stage(gives[b]);
        uint64_t middle = before[stage] + model->blocks[b]->count / 2;

        ret_primaries[b] = first[stage] + (uint32_t)(middle * ranks[stage] / totals[stage]);
        before[stage] += model->blocks[b]->count;
    }
}

static void place_stages(const struct rb_replicas *how, const Rb__Model *model,
                         const uint32_t *seconds, Rb__Plan *plan)
{
    RB_CLEANUP(rb_freep)
    uint32_t *primaries = rb_alloc((model->n_blocks + 1) * sizeof(*primaries));

    find_primaries(how, model, plan, primaries);
    plan->shards = rb_alloc((model->n_blocks + 1) * sizeof(*plan->shards));
    for (uint64_t b = 0, end; b < model->n_blocks; b = end) {
        for (end = b + 1; end < model->n_blocks && primaries[end] == primaries[b];)
            end++;
        add_shard(plan, b, end, primaries[b], seconds[primaries[b]]);
    }
}

static void add_gather(Rb__RankPlan *rank)
{
    Rb__Order *order = rb_alloc(sizeof(*order));

    rb__order__init(order);
    order->kind = RB__ORDER__KIND__GATHER;
    rank->orders = rb_realloc(rank->orders, (rank->n_orders + 1) * sizeof(Rb__Order *));
    rank->orders[rank->n_orders++] = order;
}

static void place_runs(const Rb__Model *model, uint32_t runs, const uint32_t *seconds,
                       Rb__Plan *plan)
{
    uint64_t first = 0;

    plan->shards = rb_alloc(runs * sizeof(*plan->shards));
    for (uint32_t i = 0; i < runs; i++) {
        uint64_t end = i + 1 < runs ? cut(model, runs, i + 1, first + 1) : model->n_blocks;

        add_shard(plan, first, end, i, seconds[i]);
        first = end;
    }
}

void rb_replicas_place(const struct rb_replicas *how, const Rb__Model *model, Rb__Plan *plan)
{
    RB_CLEANUP(rb_freep) uint32_t *seconds = rb_alloc(how->ranks * sizeof(*seconds));
    uint32_t runs = rb_replicas_runs(how);
    struct rb_buffer summary = {0};

    if (!runs)
        return;
    rb_replicas_seconds(how, seconds);
    if (plan->stages && runs == how->ranks)
        place_stages(how, model, seconds, plan);
    else
        place_runs(model, runs, seconds, plan);
    for (size_t r = 0; r < plan->n_ranks; r++)
        add_gather(plan->ranks[r]);
    rb_buffer_text(&summary, plan->summary);
    rb_replicas_text(how, &summary);
    free(plan->summary);
    plan->summary = rb_buffer_take(&summary);
}
