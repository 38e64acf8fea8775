/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/split.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"

#include <inttypes.h>

void rb_split_text(uint32_t parts, uint32_t ranks, uint32_t microbatches, struct rb_buffer *out)
{
    rb_buffer_format(out,
                     "filters split in %" PRIu32 " parts x%" PRIu32 ", %" PRIu32 " microbatch%s",
                     parts, ranks, microbatches, microbatches == 1 ? "" : "es");
}

static void add_order(Rb__RankPlan *rank, Rb__Order__Kind kind, uint32_t argument)
{
    Rb__Order *order = rb_alloc(sizeof *order);

    rb__order__init(order);
    order->kind = kind;
    order->has_argument = kind == RB__ORDER__KIND__COMPUTE || kind == RB__ORDER__KIND__REDUCE;
    order->argument = argument;
    rank->orders[rank->n_orders++] = order;
}

/* Microbatches replica, replica + replicas, ...: ascending on every rank, so that a rank that waits
 * for another's part of a microbatch is never waited for by that one. */
static Rb__RankPlan *new_rank(const Rb__Model *model, uint32_t total, uint32_t part,
                              uint32_t replica, uint32_t replicas)
{
    Rb__RankPlan *rank = rb_alloc(sizeof *rank);

    rb__rank_plan__init(rank);
    rank->has_stage = 1;
    rank->stage = part;
    rank->orders = rb_alloc(sizeof *rank->orders * ((size_t)total + model->n_buckets + 2));
    for (uint32_t m = replica; replica < replicas && m < total; m += replicas)
        add_order(rank, RB__ORDER__KIND__COMPUTE, m);
    for (size_t b = 0; b < model->n_buckets; b++)
        add_order(rank, RB__ORDER__KIND__REDUCE, (uint32_t)b);
    add_order(rank, RB__ORDER__KIND__VOTE, 0);
    add_order(rank, RB__ORDER__KIND__UPDATE, 0);
    return rank;
}

int rb_split_plan(const Rb__Model *model, uint32_t ranks, uint32_t parts, Rb__Plan **ret_plan,
                  struct rb_why *why)
{
    uint32_t total = rb_schedule_microbatches(model);
    struct rb_buffer summary = {0};
    Rb__Plan *plan;

    if (!total || parts < 2 || ranks < parts ||
        rb_split_program(model, parts, parts - 1, (uint32_t)model->micro_batch) < 0)
        return rb_why_set(why, RB_EINVAL,
                          "the model has no programs for %" PRIu32 " parts on %" PRIu32 " devices",
                          parts, ranks);
    plan = rb_alloc(sizeof *plan);
    rb__plan__init(plan);
    plan->format = 1;
    plan->has_stages = plan->has_split = 1;
    plan->stages = parts;
    plan->split = 1;
    rb_split_text(parts, ranks, total, &summary);
    plan->summary = rb_buffer_take(&summary);
    plan->ranks = rb_alloc(ranks * sizeof *plan->ranks);
    for (uint32_t part = 0; part < parts; part++)
        for (uint32_t i = 0; i < rb_pipeline_ranks(parts, ranks, part); i++)
            plan->ranks[plan->n_ranks++] = new_rank(model, total, part, i, ranks / parts);
    *ret_plan = plan;
    return 0;
}
