/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/configuration.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"
#include "worker/batch.h"
#include "worker/orders.h"
#include "worker/tag.h"

#include <stdlib.h>
#include <string.h>

enum { MEMBERS_LIMIT = 4096 };
/* Parts of the tags of an opening: behind those of worker/join/opening_inside.h. */
enum { PART_ROLES = 100, PART_CIRCLE, PART_INHERIT = 110, PART_ARRIVE };
enum { CIRCLE_MS = 20000 };

/* In laps the stage that makes a block's gradient updates the block. */
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
    one->stands = order->stands;
    one->digest = rb_hash64(order->digest, strlen(order->digest));
    one->restore = order->restore ? rb_string(order->restore) : NULL;
    err = rb_orders_read(order, one->size, model, &one->plan, why);
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
                          const atomic_bool *cancel, struct rb_why *why)
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

/* The blocks that this member shall hold, and those that it takes from leavers for others. */
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

/* The plan and the model's class make every member decide alike.  In laps no rank sums what others
 * make. */
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
