/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/schedule.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t rb_schedule_microbatches(const Rb__Model *model)
{
    if (model->global_batch < 1 || model->micro_batch < 1 ||
        model->global_batch / model->micro_batch >= INT32_MAX)
        return 0;
    return (uint32_t)((model->global_batch - 1) / model->micro_batch + 1);
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

/* ---- Which rank computes what ----------------------------------------------------------------*/

void rb_schedule_even(uint32_t total, uint32_t ranks, int32_t *ret_owners)
{
    uint32_t base = total / ranks, longer = total % ranks, m = 0;

    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t i = 0; i < base + (r < longer); i++)
            ret_owners[m++] = (int32_t)r;
}

static uint32_t *count_shares(uint32_t total, const int32_t *owners, uint32_t ranks)
{
    uint32_t *counts = rb_alloc(ranks * sizeof(*counts));

    for (uint32_t m = 0; m < total; m++)
        if (owners[m] != RB_SCHEDULE_LOST)
            counts[owners[m]]++;
    return counts;
}

static int32_t smallest(const uint32_t *counts, uint32_t ranks)
{
    uint32_t found = 0;

    for (uint32_t r = 1; r < ranks; r++)
        if (counts[r] < counts[found])
            found = r;
    return (int32_t)found;
}

void rb_schedule_after(uint32_t total, const int32_t *owners, const int32_t *became, uint32_t ranks,
                       int32_t *ret_owners)
{
    RB_CLEANUP(rb_freep) uint32_t *counts = NULL;

    for (uint32_t m = 0; m < total; m++)
        ret_owners[m] = became[owners[m]];
    counts = count_shares(total, ret_owners, ranks);
    for (uint32_t m = 0; m < total; m++)
        if (ret_owners[m] == RB_SCHEDULE_LOST) {
            ret_owners[m] = smallest(counts, ranks);
            counts[ret_owners[m]]++;
        }
}

static int more_first(const void *a, const void *b)
{
    const uint32_t *left = a, *right = b;

    return (*left < *right) - (*left > *right);
}

/* All shares where there are few ranks, else how often each size occurs. */
static void list_shares(struct rb_buffer *text, uint32_t *counts, uint32_t ranks)
{
    if (ranks <= 16) {
        for (uint32_t r = 0; r < ranks; r++)
            rb_buffer_format(text, " %" PRIu32, counts[r]);
        return;
    }
    qsort(counts, ranks, sizeof(*counts), more_first);
    if (counts[0] == counts[ranks - 1]) {
        rb_buffer_format(text, " %" PRIu32 " each", counts[0]);
        return;
    }
    for (uint32_t r = 0, next; r < ranks; r = next) {
        for (next = r; next < ranks && counts[next] == counts[r];)
            next++;
        rb_buffer_format(text, "%s %" PRIu32 " on %" PRIu32, r ? "," : "", counts[r], next - r);
    }
}

char *rb_schedule_summary(uint32_t total, const int32_t *owners, uint32_t ranks)
{
    RB_CLEANUP(rb_freep) uint32_t *counts = count_shares(total, owners, ranks);
    struct rb_buffer text = {0};

    rb_buffer_format(&text, "data parallel x%" PRIu32 ", %" PRIu32 " microbatch%s:", ranks, total,
                     total == 1 ? "" : "es");
    list_shares(&text, counts, ranks);
    return rb_buffer_take(&text);
}

/* ---- The plan --------------------------------------------------------------------------------*/

/* One step of one rank: its microbatches, then every bucket in the order in which the backward pass
 * completes them, the vote, the update. */
static Rb__RankPlan *new_rank(uint32_t total, const int32_t *owners, int32_t self, uint32_t count,
                              size_t buckets)
{
    Rb__RankPlan *rank = rb_alloc(sizeof(*rank));

    rb__rank_plan__init(rank);
    rank->orders = rb_alloc(sizeof(*rank->orders) * (count + buckets + 2));
    for (uint32_t m = 0; m < total; m++)
        if (owners[m] == self)
            add_order(rank, RB__ORDER__KIND__COMPUTE, m);
    for (size_t b = 0; b < buckets; b++)
        add_order(rank, RB__ORDER__KIND__REDUCE, (uint32_t)b);
    add_order(rank, RB__ORDER__KIND__VOTE, 0);
    add_order(rank, RB__ORDER__KIND__UPDATE, 0);
    return rank;
}

int rb_schedule_plan(const Rb__Model *model, uint32_t ranks, const int32_t *owners,
                     Rb__Plan **ret_plan, struct rb_why *why)
{
    enum { MOST_RANKS = 1 << 16 };
    RB_CLEANUP(rb_freep) int32_t *even = NULL;
    RB_CLEANUP(rb_freep) uint32_t *counts = NULL;
    Rb__Plan *plan;
    uint32_t total = rb_schedule_microbatches(model);

    if (ranks == 0 || ranks > MOST_RANKS)
        return rb_why_set(why, RB_EINVAL,
                          "cannot plan for %" PRIu32 " devices: 1 to %d are possible", ranks,
                          MOST_RANKS);
    if (!total)
        return rb_why_set(why, RB_EINVAL,
                          "a batch of %" PRId64 " in microbatches of %" PRId64 " cannot be planned",
                          model->global_batch, model->micro_batch);
    if (!owners) {
        even = rb_alloc(total * sizeof(*even));
        rb_schedule_even(total, ranks, even);
        owners = even;
    }
    counts = count_shares(total, owners, ranks);
    plan = rb_alloc(sizeof(*plan));
    rb__plan__init(plan);
    plan->format = 1;
    plan->summary = rb_schedule_summary(total, owners, ranks);
    plan->ranks = rb_alloc(sizeof(*plan->ranks) * ranks);
    for (uint32_t r = 0; r < ranks; r++)
        plan->ranks[plan->n_ranks++] =
            new_rank(total, owners, (int32_t)r, counts[r], model->n_buckets);
    *ret_plan = plan;
    return 0;
}

int rb_schedule_data(const Rb__Model *model, uint32_t ranks, Rb__Plan **ret_plan,
                     struct rb_why *why)
{
    return rb_schedule_plan(model, ranks, NULL, ret_plan, why);
}

void rb_plan_print(const Rb__Plan *plan, struct rb_buffer *out)
{
    static const char *const words[] = {"compute", "reduce",  "vote",    "update",
                                        "gather",  "forward", "backward"};

    rb_buffer_format(out, "plan %s\n", plan->summary);
    for (size_t i = 0; i < plan->n_shards; i++) {
        const Rb__Shard *shard = plan->shards[i];

        rb_buffer_format(out, "blocks %" PRIu32 " +%" PRIu32 ": ranks", shard->first_block,
                         shard->n_blocks);
        for (size_t r = 0; r < shard->n_ranks; r++)
            rb_buffer_format(out, " %" PRIu32, shard->ranks[r]);
        rb_buffer_text(out, "\n");
    }
    for (size_t r = 0; r < plan->n_ranks; r++) {
        const Rb__RankPlan *rank = plan->ranks[r];

        rb_buffer_format(out, "rank %zu", r);
        if (plan->stages)
            rb_buffer_format(out, ", stage %" PRIu32, rank->stage);
        rb_buffer_text(out, ":");
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
