/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/join/parcels.h"

#include "worker/join/wire.h"

int rb_parcels_open(const struct rb_model *model, void *ret_address, struct rb_parcels *ret_parcels,
                    struct rb_why *why)
{
    size_t room = rb_wire_largest_bytes(model);

    *ret_parcels = (struct rb_parcels){.room = room};
    return rb_shelf_open(model->device, RB_PARCELS * room, ret_address, &ret_parcels->shelf, why);
}

int rb_parcels_find(const struct rb_model *model, const void *address,
                    struct rb_parcels *ret_parcels, struct rb_why *why)
{
    size_t room = rb_wire_largest_bytes(model);

    *ret_parcels = (struct rb_parcels){.room = room};
    return rb_shelf_find(model->device, address, RB_PARCELS * room, &ret_parcels->shelf, why);
}

static size_t next_slot(struct rb_parcels *parcels)
{
    return (size_t)(parcels->n++ % RB_PARCELS) * parcels->room;
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
