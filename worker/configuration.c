/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/configuration.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/batch.h"
#include "worker/step.h"

#include <stdlib.h>
#include <string.h>

enum { PLAN_LIMIT = 64 << 20, MEMBERS_LIMIT = 4096 };
/* Of an opening's tags: behind those of worker/join/opening.c. */
enum { PART_ROLES = 100, PART_CIRCLE, PART_INHERIT = 110, PART_ARRIVE };
enum { CIRCLE_MS = 20000 };

/* One that is named twice, by whichever ranks, would be summed twice.  Stages and parts of the
 * filters are looked at apart (worker/stage.c): there each has every microbatch once. */
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

/* COMPUTE... (or stages' parts, see worker/stage.h), REDUCE..., VOTE, UPDATE, and GATHER where
 * there are shards: the sums are complete before they are reduced, nothing is applied that was not
 * voted for, and no weight is left old that is read. */
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

static int read_plan(const char *path, Rb__Plan **ret_plan, struct rb_why *why)
{
    struct rb_buffer bytes = {0};
    int err = rb_file_read(path, PLAN_LIMIT, &bytes, why);

    if (!err) {
        *ret_plan = rb__plan__unpack(NULL, bytes.size, (const uint8_t *)bytes.data);
        if (!*ret_plan)
            err = rb_why_set(why, RB_EINVAL, "%s is no plan", path);
    }
    rb_buffer_done(&bytes);
    return err;
}

/* In laps the stage that makes a block's gradient updates it. */
static int check_makers(const struct rb_configuration *one, const Rb__Model *model,
                        struct rb_why *why)
{
    for (size_t b = 0; one->stage && model->asynchronous && b < model->n_blocks; b++) {
        uint32_t stage = rb_stage_maker(one->stage, b);

        if (!rb_placement_holds(&one->placement, rb_stage_owner(one->stage, stage, 0), b))
            return rb_why_set(why, RB_EINVAL, "plan: block %zu is not held where it is made", b);
    }
    return 0;
}

static struct rb_steal *new_steal(const struct rb_configuration *one, uint32_t microbatches)
{
    RB_CLEANUP(rb_freep) int32_t *owners = rb_alloc(microbatches * sizeof *owners);

    for (size_t r = 0; r < one->plan->n_ranks; r++)
        for (size_t i = 0; i < one->plan->ranks[r]->n_orders; i++) {
            const Rb__Order *order = one->plan->ranks[r]->orders[i];

            if (order->kind == RB__ORDER__KIND__COMPUTE)
                owners[order->argument] = (int32_t)r;
        }
    return rb_steal_new(one->rank, one->size, owners, microbatches);
}

int rb_configuration_read(const Rb__Configure *order, const Rb__Model *model,
                          struct rb_configuration **ret_configuration, struct rb_why *why)
{
    struct rb_configuration *one;
    int err;

    if (!order->number || order->n_members < 1 || order->n_members > MEMBERS_LIMIT ||
        order->rank >= order->n_members)
        return rb_why_set(why, RB_EINVAL, "rank %u of %zu is impossible", order->rank,
                          order->n_members);
    one = rb_alloc(sizeof *one);
    one->number = order->number;
    one->rank = order->rank;
    one->size = (uint32_t)order->n_members;
    one->recovers = order->recovers;
    one->digest = rb_hash64(order->digest, strlen(order->digest));
    one->restore = order->restore ? rb_string(order->restore) : NULL;
    err = read_plan(order->plan_path, &one->plan, why);
    if (!err && one->plan->n_ranks != one->size)
        err = rb_why_set(why, RB_EINVAL, "the plan is for %zu ranks, there are %u members",
                         one->plan->n_ranks, one->size);
    if (!err)
        err = check_plan(one->plan, model, why);
    if (!err)
        err = rb_placement_make(one->plan, model, &one->placement, why);
    if (!err)
        err = rb_stage_read(one->plan, model, one->rank, &one->stage, why);
    if (!err)
        err = check_makers(one, model, why);
    if (err) {
        rb_configuration_free(one);
        return err;
    }
    one->orders = one->plan->ranks[one->rank];
    if (one->plan->steals && !one->stage && !one->plan->stages && one->size > 1)
        one->steal = new_steal(one, rb_batch_count(model->global_batch, model->micro_batch));
    *ret_configuration = one;
    return 0;
}

int rb_configuration_meet(struct rb_configuration *configuration, const Rb__Configure *order,
                          const char *job, struct rb_listener *listener, int timeout_ms,
                          const volatile bool *cancel, struct rb_why *why)
{
    RB_CLEANUP(rb_freep)
    struct rb_coll_member *members = rb_alloc(order->n_members * sizeof *members);
    int err;
    struct rb_group group = {
        .job = job,
        .configuration = order->number,
        .digest = order->digest,
        .rank = (int)order->rank,
        .size = (int)order->n_members,
        .members = members,
    };

    for (size_t i = 0; i < order->n_members; i++)
        members[i] = (struct rb_coll_member){
            .worker = order->members[i]->worker,
            .addresses = (const char *const *)order->members[i]->addresses,
            .n_addresses = (int)order->members[i]->n_addresses,
        };
    err = rb_coll_open(listener, &group, timeout_ms, cancel, &configuration->coll, why);
    rb_fault("worker.met");
    return err;
}

/* What it shall hold, and what it takes for others from those who leave. */
static uint8_t *list_wants(const struct rb_configuration *configuration)
{
    const struct rb_roster *roster = configuration->roster;
    size_t blocks = configuration->placement.blocks;
    int source = rb_roster_source(roster, configuration->rank);
    uint8_t *wants;

    if (source < 0)
        return NULL;
    wants = rb_alloc(blocks + 1);
    for (size_t b = 0; b < blocks; b++)
        wants[b] = rb_placement_holds(&configuration->placement, configuration->rank, b) ||
                   roster->heirs[b] == source;
    return wants;
}

int rb_configuration_introduce(struct rb_configuration *configuration, const struct rb_role *role,
                               const uint8_t *held, struct rb_why *why)
{
    uint32_t size = configuration->size;
    size_t blocks = configuration->placement.blocks, bytes = sizeof *role + blocks;
    RB_CLEANUP(rb_freep) uint8_t *mine = rb_alloc(bytes);
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc(size * bytes);
    RB_CLEANUP(rb_freep) struct rb_role *roles = rb_alloc(size * sizeof *roles);
    RB_CLEANUP(rb_freep) uint8_t *holds = rb_alloc(size * blocks + 1);
    struct rb_roster roster;
    int err;

    memcpy(mine, role, sizeof *role);
    memcpy(mine + sizeof *role, held, blocks);
    err = rb_coll_gather(configuration->coll,
                         rb_tag(RB_TAG_OPENING, configuration->number, 0, PART_ROLES), mine, all,
                         bytes, why);
    if (err)
        return err;
    for (uint32_t r = 0; r < size; r++) {
        memcpy(&roles[r], all + r * bytes, sizeof *roles);
        memcpy(holds + r * blocks, all + r * bytes + sizeof *roles, blocks);
    }
    if (!rb_roster_make(roles, size, holds, configuration->placement.holds, blocks, &roster))
        return 0;
    configuration->roster = rb_alloc(sizeof *configuration->roster);
    *configuration->roster = roster;
    configuration->wants = list_wants(configuration);
    return 0;
}

/* Every member comes to the same by the plan and the model's class.  In laps nobody sums what
 * others make. */
static bool may_circle(const struct rb_configuration *configuration, const struct rb_device *device)
{
    return configuration->size >= 2 && !rb_configuration_laps(configuration) &&
           rb_device_circles(device);
}

int rb_configuration_circle(struct rb_configuration *configuration, struct rb_device *device,
                            struct rb_why *ret_none, struct rb_why *why)
{
    if (!may_circle(configuration, device))
        return 0;
    return rb_circle_agree(configuration->coll,
                           rb_tag(RB_TAG_OPENING, configuration->number, 0, PART_CIRCLE), device,
                           CIRCLE_MS, &configuration->circle, ret_none, why);
}

static void say_none(const struct rb_configuration *configuration, const struct rb_why *none)
{
    if (!configuration->coming.on && !configuration->circle && none->text[0])
        rb_log(RB_LOG_INFO, "configuration %u: sums go through the hosts: %s",
               configuration->number, none->text);
}

int rb_configuration_inherit(struct rb_configuration *configuration, struct rb_device *device,
                             struct rb_circle_past *past, struct rb_why *why)
{
    struct rb_why none = {0};
    int err;

    if (!configuration->recovers || !may_circle(configuration, device))
        return 0;
    err = rb_circle_inherit(configuration->coll,
                            rb_tag(RB_TAG_OPENING, configuration->number, 0, PART_INHERIT), past,
                            CIRCLE_MS, &configuration->coming, &none, why);
    if (!err)
        say_none(configuration, &none);
    return err;
}

int rb_configuration_arrive(struct rb_configuration *configuration, int64_t level,
                            struct rb_why *why)
{
    struct rb_why none = {0};
    int err;

    if (!configuration->coming.on)
        return 0;
    err = rb_circle_arrive(configuration->coll, rb_tag(RB_TAG_OPENING, level, 0, PART_ARRIVE),
                           &configuration->coming, &configuration->circle, &none, why);
    if (!err && configuration->circle)
        rb_log(RB_LOG_INFO, "configuration %u: sums go from GPU to GPU again",
               configuration->number);
    if (!err)
        say_none(configuration, &none);
    return err;
}

bool rb_configuration_follows(const struct rb_configuration *configuration)
{
    return configuration->roster &&
           rb_roster_newcomer(configuration->roster, configuration->rank) >= 0;
}

int rb_configuration_settle(const struct rb_configuration *configuration, struct rb_why *why)
{
    return configuration->feed ? rb_feed_settle(configuration->feed, why) : 0;
}

void rb_configuration_free(struct rb_configuration *configuration)
{
    if (!configuration)
        return;
    rb_feed_close(configuration->feed);
    if (configuration->roster)
        rb_roster_done(configuration->roster);
    free(configuration->roster);
    free(configuration->wants);
    rb_circle_leave(configuration->circle);
    rb_circle_leave(configuration->coming.circle);
    if (configuration->coll)
        rb_coll_close(configuration->coll);
    rb_placement_done(&configuration->placement);
    rb_stage_free(configuration->stage);
    rb_steal_free(configuration->steal);
    if (configuration->plan)
        rb__plan__free_unpacked(configuration->plan, NULL);
    free(configuration->restore);
    free(configuration);
}
