/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/stages/stage_inside.h"

#include "base/arena.h"

static const uint32_t nobody = UINT32_MAX;

/* The forward or backward orders of a rank: each of a microbatch that no other rank has, ascending,
 * so that messages between two ranks come in the order in which they are waited for. */
static int read_orders(struct rb_stage *stage, const Rb__RankPlan *plan, uint32_t rank,
                       struct rb_why *why)
{
    uint32_t *owners = stage->owners + (size_t)plan->stage * stage->microbatches;
    int64_t forward = -1, backward = -1;
    uint32_t left = 0;

    for (size_t i = 0; i < plan->n_orders; i++) {
        const Rb__Order *order = plan->orders[i];
        bool goes = order->kind == RB__ORDER__KIND__FORWARD;

        if (!goes && order->kind != RB__ORDER__KIND__BACKWARD)
            continue;
        if (order->argument >= stage->microbatches ||
            (int64_t)order->argument <= (goes ? forward : backward) ||
            (goes ? owners[order->argument] != nobody : owners[order->argument] != rank))
            return rb_why_set(why, RB_EINVAL,
                              "plan, rank %u: microbatch %u is out of turn in stage %u", rank,
                              order->argument, plan->stage);
        *(goes ? &forward : &backward) = order->argument;
        owners[order->argument] = rank;
        left += goes ? 1 : -1;
        stage->flights = left > stage->flights ? left : stage->flights;
    }
    if (left)
        return rb_why_set(why, RB_EINVAL, "plan, rank %u: %u microbatches do not come back", rank,
                          left);
    return 0;
}

/* The orders of a part of the filters: each of a microbatch, ascending, so that ranks which are in
 * a microbatch together come to it without waiting for each other in a cycle. */
static int read_computes(struct rb_stage *stage, const Rb__RankPlan *plan, uint32_t rank,
                         struct rb_why *why)
{
    uint32_t *owners = stage->owners + (size_t)plan->stage * stage->microbatches;
    int64_t last = -1;

    for (size_t i = 0; i < plan->n_orders; i++) {
        const Rb__Order *order = plan->orders[i];

        if (order->kind != RB__ORDER__KIND__COMPUTE)
            continue;
        if (order->argument >= stage->microbatches || (int64_t)order->argument <= last ||
            owners[order->argument] != nobody)
            return rb_why_set(why, RB_EINVAL,
                              "plan, rank %u: microbatch %u is out of turn in part %u", rank,
                              order->argument, plan->stage);
        last = order->argument;
        owners[order->argument] = rank;
    }
    return 0;
}

/* While a step is played. */
struct play {
    const struct rb_stage *stage;
    const Rb__Plan *plan;
    size_t *next;             /* by rank: the order that it has come to */
    bool *forward, *backward; /* by stage * microbatches + microbatch: done */
};

/* Are all stages in front of (behind) `one` done with the microbatch? */
static bool is_due(const struct play *play, uint32_t one, const Rb__Order *order)
{
    const struct rb_stage *stage = play->stage;
    bool goes = order->kind == RB__ORDER__KIND__FORWARD;

    for (uint32_t k = goes ? 0 : one + 1; k < (goes ? one : stage->stages); k++)
        if (!(goes ? play->forward
                   : play->backward)[(size_t)k * stage->microbatches + order->argument])
            return false;
    return true;
}

/* Play rank `r` as far as it gets. */
static bool play_rank(struct play *play, size_t r)
{
    const Rb__RankPlan *plan = play->plan->ranks[r];
    size_t before = play->next[r];

    for (; play->next[r] < plan->n_orders; play->next[r]++) {
        const Rb__Order *order = plan->orders[play->next[r]];
        bool goes = order->kind == RB__ORDER__KIND__FORWARD;

        if (!goes && order->kind != RB__ORDER__KIND__BACKWARD)
            continue;
        if (!is_due(play, plan->stage, order))
            break;
        (goes ? play->forward
              : play->backward)[(size_t)plan->stage * play->stage->microbatches + order->argument] =
            true;
    }
    return play->next[r] > before;
}

static int check_waits(const struct rb_stage *stage, const Rb__Plan *plan, struct rb_why *why)
{
    size_t cells = (size_t)stage->stages * stage->microbatches + 1;
    RB_CLEANUP(rb_freep) size_t *next = rb_alloc((plan->n_ranks + 1) * sizeof *next);
    RB_CLEANUP(rb_freep) bool *forward = rb_alloc(cells * sizeof *forward);
    RB_CLEANUP(rb_freep) bool *backward = rb_alloc(cells * sizeof *backward);
    struct play play = {stage, plan, next, forward, backward};
    bool moved = true;

    while (moved) {
        moved = false;
        for (size_t r = 0; r < plan->n_ranks; r++)
            moved |= play_rank(&play, r);
    }
    for (size_t r = 0; r < plan->n_ranks; r++)
        if (next[r] < plan->ranks[r]->n_orders)
            return rb_why_set(why, RB_EINVAL, "plan: rank %zu waits for ever", r);
    return 0;
}

int rb_stage_read_orders(struct rb_stage *stage, const Rb__Plan *plan, struct rb_why *why)
{
    size_t cells = (size_t)stage->stages * stage->microbatches;
    int err = 0;

    stage->of_rank = rb_alloc((plan->n_ranks + 1) * sizeof *stage->of_rank);
    stage->owners = rb_alloc((cells + 1) * sizeof *stage->owners);
    for (size_t i = 0; i < cells; i++)
        stage->owners[i] = nobody;
    for (uint32_t r = 0; !err && r < stage->ranks; r++) {
        if (plan->ranks[r]->stage >= stage->stages)
            return rb_why_set(why, RB_EINVAL, "plan, rank %u: stage %u of %u", r,
                              plan->ranks[r]->stage, stage->stages);
        stage->of_rank[r] = plan->ranks[r]->stage;
        err = (stage->split ? read_computes : read_orders)(stage, plan->ranks[r], r, why);
    }
    for (size_t i = 0; !err && i < cells; i++)
        if (stage->owners[i] == nobody)
            err = rb_why_set(why, RB_EINVAL, "plan: nobody runs microbatch %zu in stage %zu",
                             i % stage->microbatches, i / stage->microbatches);
    return err || stage->split ? err : check_waits(stage, plan, why);
}
