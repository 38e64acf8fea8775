/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <inttypes.h>
#include <stdio.h>

static uint32_t microbatches(const Rb__Model *model)
{
    return (uint32_t)((model->global_batch + model->micro_batch - 1) / model->micro_batch);
}

static void add_order(Rb__RankPlan *rank, Rb__Order__Kind kind, uint32_t argument)
{
    Rb__Order *order = rb_alloc(sizeof(*order));

    rb__order__init(order);
    order->kind = kind;
    if (kind == RB__ORDER__KIND__COMPUTE || kind == RB__ORDER__KIND__REDUCE) {
        order->has_argument = 1;
        order->argument = argument;
    }
    rank->orders[rank->n_orders++] = order;
}

/* One step of one rank: its run of microbatches, then every bucket in the order in which the
 * backward pass completes them, the vote, the update. */
static Rb__RankPlan *new_rank(uint32_t first, uint32_t count, size_t buckets)
{
    Rb__RankPlan *rank = rb_alloc(sizeof(*rank));

    rb__rank_plan__init(rank);
    rank->orders = rb_alloc(sizeof(*rank->orders) * (count + buckets + 2));
    for (uint32_t m = 0; m < count; m++)
        add_order(rank, RB__ORDER__KIND__COMPUTE, first + m);
    for (size_t b = 0; b < buckets; b++)
        add_order(rank, RB__ORDER__KIND__REDUCE, (uint32_t)b);
    add_order(rank, RB__ORDER__KIND__VOTE, 0);
    add_order(rank, RB__ORDER__KIND__UPDATE, 0);
    return rank;
}

/* Shares in words: all of them for a few ranks, else the two sizes that occur. */
static char *summarise(uint32_t ranks, uint32_t total)
{
    struct rb_buffer text = {0};
    uint32_t base = total / ranks, longer = total % ranks;

    rb_buffer_format(&text, "data parallel x%" PRIu32 ", %" PRIu32 " microbatch%s:", ranks, total,
                     total == 1 ? "" : "es");
    if (ranks <= 16) {
        for (uint32_t r = 0; r < ranks; r++)
            rb_buffer_format(&text, " %" PRIu32, base + (r < longer));
    } else if (longer) {
        rb_buffer_format(&text, " %" PRIu32 " on %" PRIu32 ", %" PRIu32 " on %" PRIu32, base + 1,
                         longer, base, ranks - longer);
    } else {
        rb_buffer_format(&text, " %" PRIu32 " each", base);
    }
    return rb_buffer_take(&text);
}

int rb_schedule_data(const Rb__Model *model, uint32_t ranks, Rb__Plan **ret_plan,
                     struct rb_why *why)
{
    enum { MOST_RANKS = 1 << 16 };
    Rb__Plan *plan;
    uint32_t total, first = 0;

    if (ranks == 0 || ranks > MOST_RANKS)
        return rb_why_set(why, RB_EINVAL,
                          "cannot plan for %" PRIu32 " devices: 1 to %d are possible", ranks,
                          MOST_RANKS);
    if (model->global_batch < 1 || model->micro_batch < 1 ||
        model->global_batch / model->micro_batch > INT32_MAX)
        return rb_why_set(why, RB_EINVAL,
                          "a batch of %" PRId64 " in microbatches of %" PRId64 " cannot be planned",
                          model->global_batch, model->micro_batch);
    total = microbatches(model);
    plan = rb_alloc(sizeof(*plan));
    rb__plan__init(plan);
    plan->format = 1;
    plan->summary = summarise(ranks, total);
    plan->ranks = rb_alloc(sizeof(*plan->ranks) * ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t count = total / ranks + (r < total % ranks);

        plan->ranks[plan->n_ranks++] = new_rank(first, count, model->n_buckets);
        first += count;
    }
    *ret_plan = plan;
    return 0;
}

void rb_plan_print(const Rb__Plan *plan, struct rb_buffer *out)
{
    static const char *const words[] = {"compute", "reduce", "vote", "update"};

    rb_buffer_format(out, "plan %s\n", plan->summary);
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const Rb__RankPlan *rank = plan->ranks[r];

        rb_buffer_format(out, "rank %zu:", r);
        for (size_t i = 0; i < rank->n_orders; i++) {
            const Rb__Order *order = rank->orders[i];

            if ((unsigned)order->kind >= RB_COUNT(words))
                rb_buffer_format(out, " order-%d", (int)order->kind);
            else
                rb_buffer_format(out, " %s", words[order->kind]);
            if (order->has_argument)
                rb_buffer_format(out, " %" PRIu32, order->argument);
            rb_buffer_text(out, i + 1 < rank->n_orders ? "," : "\n");
        }
    }
}
