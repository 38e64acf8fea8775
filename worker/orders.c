/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/orders.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "worker/batch.h"

enum { PLAN_LIMIT = 64 << 20 };

/* A microbatch that is named twice, by whichever ranks, would be summed twice.  Stages and parts
 * of the filters are checked elsewhere (worker/stages/stage.c): there each has every microbatch
 * once. */
static int check_compute(const Rb__Plan *plan, uint32_t microbatch, uint32_t microbatches,
                         uint8_t *taken, struct rb_why *why)
{
    if (plan->stages && !plan->split)
        return rb_why_set(why, RB_EINVAL, "microbatch %u is computed in one piece in a pipeline",
                          microbatch);
    if (microbatch >= microbatches)
        return rb_why_set(why, RB_EINVAL, "there is no microbatch %u, only %u", microbatch,
                          microbatches);
    if (!plan->stages && taken[microbatch]++)
        return rb_why_set(why, RB_EINVAL, "microbatch %u is computed twice", microbatch);
    return 0;
}

/* COMPUTE... (or stages' parts, see worker/stages/stage.h), REDUCE..., VOTE, UPDATE, and GATHER
 * where there are shards: the sums are complete before they are reduced, nothing is applied without
 * a vote, and every weight that is read is up to date. */
static int check_orders(const Rb__RankPlan *orders, const Rb__Model *model, uint32_t microbatches,
                        const Rb__Plan *plan, uint8_t *taken, struct rb_why *why)
{
    enum { COMPUTING, REDUCING, VOTED, UPDATED, GATHERED } stage = COMPUTING;
    uint32_t buckets = 0;
    int err;

    for (size_t i = 0; i < orders->n_orders; i++) {
        const Rb__Order *order = orders->orders[i];

        switch (order->kind) {
        case RB__ORDER__KIND__COMPUTE:
            if (stage != COMPUTING)
                return rb_why_set(why, RB_EINVAL, "microbatch %u is computed too late",
                                  order->argument);
            err = check_compute(plan, order->argument, microbatches, taken, why);
            if (err)
                return err;
            break;
        case RB__ORDER__KIND__FORWARD:
        case RB__ORDER__KIND__BACKWARD:
            if (stage != COMPUTING || !plan->stages || plan->split)
                return rb_why_set(why, RB_EINVAL, "microbatch %u is computed out of turn",
                                  order->argument);
            break;
        case RB__ORDER__KIND__REDUCE:
            /* in the model's order, so that all ranks make the same calls */
            if (stage > REDUCING || order->argument != buckets++)
                return rb_why_set(why, RB_EINVAL, "bucket %u is reduced out of turn",
                                  order->argument);
            stage = REDUCING;
            break;
        case RB__ORDER__KIND__VOTE:
            if (stage >= VOTED || buckets != model->n_buckets)
                return rb_why_set(why, RB_EINVAL, "the vote is out of turn");
            stage = VOTED;
            break;
        case RB__ORDER__KIND__UPDATE:
            if (stage != VOTED)
                return rb_why_set(why, RB_EINVAL, "the update is out of turn");
            stage = UPDATED;
            break;
        case RB__ORDER__KIND__GATHER:
            if (stage != UPDATED)
                return rb_why_set(why, RB_EINVAL, "weights are gathered out of turn");
            stage = GATHERED;
            break;
        default:
            return rb_why_set(why, RB_EUNSUPPORTED, "order %d is unknown", (int)order->kind);
        }
    }
    if (stage != UPDATED && stage != GATHERED)
        return rb_why_set(why, RB_EINVAL, "a step without an update");
    if ((plan->n_shards != 0) != (stage == GATHERED))
        return rb_why_set(why, RB_EINVAL, "weights are gathered where there are shards");
    return 0;
}

static bool has_again(const Rb__Model *model)
{
    for (size_t p = 0; p < model->n_programs; p++)
        if (model->programs[p]->recomputes)
            return true;
    return false;
}

static int check_plan(const Rb__Plan *plan, const Rb__Model *model, struct rb_why *why)
{
    uint32_t microbatches = rb_batch_count(model->global_batch, model->micro_batch);
    RB_CLEANUP(rb_freep) uint8_t *taken = rb_alloc(microbatches);

    if (plan->format != 1)
        return rb_why_set(why, RB_EINVAL, "the plan has format %u, this worker reads 1",
                          plan->format);
    if (plan->recomputes && !has_again(model))
        return rb_why_set(why, RB_EINVAL, "plan: the model has no programs that compute again");
    for (size_t r = 0; r < plan->n_ranks; r++) {
        int err = check_orders(plan->ranks[r], model, microbatches, plan, taken, why);

        if (err)
            return rb_why_add(why, err, "plan, rank %zu", r);
    }
    for (uint32_t i = 0; !plan->stages && i < microbatches; i++)
        if (!taken[i])
            return rb_why_set(why, RB_EINVAL, "plan: nobody computes microbatch %u", i);
    return 0;
}

static int unpack(const Rb__Configure *order, Rb__Plan **ret_plan, struct rb_why *why)
{
    struct rb_buffer bytes = {0};
    int err = 0;

    if (order->has_plan)
        rb_buffer_add(&bytes, order->plan.data, order->plan.len);
    else
        err = rb_file_read(order->plan_path, PLAN_LIMIT, &bytes, why);
    if (!err) {
        *ret_plan = rb__plan__unpack(NULL, bytes.size, (const uint8_t *)bytes.data);
        if (!*ret_plan)
            err = rb_why_set(why, RB_EINVAL, "%s is no plan", order->plan_path);
    }
    rb_buffer_done(&bytes);
    return err;
}

int rb_orders_read(const Rb__Configure *order, uint32_t ranks, const Rb__Model *model,
                   Rb__Plan **ret_plan, struct rb_why *why)
{
    Rb__Plan *plan = NULL;
    int err = unpack(order, &plan, why);

    if (!err && plan->n_ranks != ranks)
        err = rb_why_set(why, RB_EINVAL, "the plan is for %zu ranks, there are %u members",
                         plan->n_ranks, ranks);
    if (!err)
        err = check_plan(plan, model, why);
    if (err && plan)
        rb__plan__free_unpacked(plan, NULL);
    else
        *ret_plan = plan;
    return err;
}
