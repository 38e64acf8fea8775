/* SPDX-License-Identifier: Apache-2.0 */
/* What jobs of a lower priority give to one of a higher.
 *
 * Nothing moves here.  The share of the job that gives shrinks, and the device gets an heir, so
 * that no other job counts on it.  Once its holder has left it, the device is free for the first
 * job in turn. */
#include "daemon/decide/allocate_inside.h"

#include <string.h>

/* Would the device serve the job as soon as its holder has left it? */
static bool inherits(const struct rb_pool *pool, const struct rb_claimant *claimant,
                     const struct rb_slot *slot)
{
    const char *needs = claimant->share->needs;
    bool foreign;

    return !slot->closed && !slot->heir && rb_pool_fits(claimant->job, slot, &foreign) &&
           (!needs || !strcmp(needs, slot->node->name)) &&
           !rb_pool_blamed_until(pool, claimant->job, slot->node->name, slot->device->index);
}

/* Is the device held by another job, which no longer has it in its share? */
static bool is_being_left(const struct rb_claimant *claimants, size_t n,
                          const struct rb_claimant *claimant, const struct rb_slot *slot)
{
    if (!slot->holder || !strcmp(slot->holder, claimant->job->id))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!strcmp(claimants[i].job->id, slot->holder))
            return !rb_share_has(claimants[i].share, slot->node->name, slot->device->index);
    return true;
}

static int32_t priority_of(const struct rb_claimant *claimant)
{
    return claimant->job->job.job->spec->priority;
}

/* The device of this place, if the claimant could have it from the job that has it in its share. */
static struct rb_slot *place_for(const struct rb_pool *pool, const struct rb_claimant *claimant,
                                 const struct rb_place *place)
{
    struct rb_slot *slot = rb_pool_find(pool, place->node, place->device);

    return slot && slot->holder && inherits(pool, claimant, slot) ? slot : NULL;
}

static void give(struct rb_claimant *from, size_t place, struct rb_slot *slot,
                 const struct rb_claimant *to)
{
    struct rb_share *share = from->share;

    memmove(&share->places[place], &share->places[place + 1],
            (share->n - place - 1) * sizeof(*share->places));
    share->n--;
    share->kept -= place < share->kept;
    share->given++;
    share->to = to->job->job.job->name;
    slot->heir = to->job->id;
}

size_t rb_pool_bequeath(struct rb_pool *pool, struct rb_claimant *claimants, size_t n,
                        const struct rb_claimant *claimant, size_t most)
{
    size_t heir_to = 0;

    for (size_t s = 0; s < pool->n && heir_to < most; s++) {
        struct rb_slot *slot = &pool->slots[s];

        if (is_being_left(claimants, n, claimant, slot) && inherits(pool, claimant, slot)) {
            slot->heir = claimant->job->id;
            heir_to++;
        }
    }
    for (size_t i = n; i-- > 0 && priority_of(&claimants[i]) < priority_of(claimant);) {
        struct rb_share *share = claimants[i].share;

        for (size_t p = share->n; p-- > 0 && heir_to < most;) {
            struct rb_slot *slot = place_for(pool, claimant, &share->places[p]);

            if (!slot || share->n <= rb_share_min(claimants[i].job))
                continue;
            give(&claimants[i], p, slot, claimant);
            heir_to++;
        }
    }
    return heir_to;
}

/* How many devices the claimant could be heir to, were it to ask. */
static size_t could_inherit(const struct rb_pool *pool, const struct rb_claimant *claimants,
                            size_t n, const struct rb_claimant *claimant)
{
    size_t most = 0;

    for (size_t s = 0; s < pool->n; s++)
        most += is_being_left(claimants, n, claimant, &pool->slots[s]) &&
                inherits(pool, claimant, &pool->slots[s]);
    for (size_t i = n; i-- > 0 && priority_of(&claimants[i]) < priority_of(claimant);) {
        const struct rb_share *share = claimants[i].share;
        size_t min = rb_share_min(claimants[i].job), useful = 0;

        for (size_t p = 0; p < share->n; p++)
            useful += place_for(pool, claimant, &share->places[p]) != NULL;
        if (share->n > min)
            most += useful < share->n - min ? useful : share->n - min;
    }
    return most;
}

/* Free devices that would serve the claimant, at most `most`; `keep`: they become the claimant's,
 * whatever other job wants them. */
static size_t free_ones(struct rb_pool *pool, const struct rb_claimant *claimant, size_t most,
                        bool keep)
{
    size_t found = 0;

    for (size_t s = 0; s < pool->n && found < most; s++) {
        struct rb_slot *slot = &pool->slots[s];

        if (slot->holder || !inherits(pool, claimant, slot))
            continue;
        if (keep)
            slot->holder = slot->heir = claimant->job->id;
        found++;
    }
    return found;
}

void rb_pool_make_room(struct rb_pool *pool, struct rb_claimant *claimants, size_t n,
                       const struct rb_claimant *claimant)
{
    size_t missing = rb_share_min(claimant->job) - claimant->share->n;
    size_t free = free_ones(pool, claimant, missing, false);

    if (free + could_inherit(pool, claimants, n, claimant) < missing)
        return;
    free_ones(pool, claimant, free, true);
    rb_pool_bequeath(pool, claimants, n, claimant,
                     rb_share_want(claimant->job) - claimant->share->n - free);
}
