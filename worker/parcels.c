/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/parcels.h"

enum { ALIGNED = 256 }; /* what devices copy fast */

static struct rb_parcels empty(size_t room, uint32_t slots)
{
    return (struct rb_parcels){.room = (room + ALIGNED - 1) / ALIGNED * ALIGNED, .slots = slots};
}

int rb_parcels_open(struct rb_device *device, size_t room, uint32_t slots, void *ret_address,
                    struct rb_parcels *ret_parcels, struct rb_why *why)
{
    *ret_parcels = empty(room, slots);
    return rb_shelf_open(device, slots * ret_parcels->room, ret_address, &ret_parcels->shelf, why);
}

int rb_parcels_find(struct rb_device *device, size_t room, uint32_t slots, const void *address,
                    struct rb_parcels *ret_parcels, struct rb_why *why)
{
    *ret_parcels = empty(room, slots);
    return rb_shelf_find(device, address, slots * ret_parcels->room, &ret_parcels->shelf, why);
}

static size_t next_slot(struct rb_parcels *parcels)
{
    return (size_t)(parcels->n++ % parcels->slots) * parcels->room;
}

void rb_parcels_put(struct rb_parcels *parcels, const struct iovec *pieces, int n)
{
    rb_shelf_put(parcels->shelf, next_slot(parcels), pieces, n);
}

void rb_parcels_take(struct rb_parcels *parcels, const struct iovec *pieces, int n)
{
    rb_shelf_take(parcels->shelf, next_slot(parcels), pieces, n);
}

void rb_parcels_close(struct rb_parcels *parcels)
{
    rb_shelf_close(parcels->shelf);
    parcels->shelf = NULL;
}
