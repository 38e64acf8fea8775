/* SPDX-License-Identifier: Apache-2.0 */
/* Parcels: from one rank's device to another's, past both hosts.
 *
 * feed, flight (put, and tell) > [parcels] > follow, flight (take, and say so)
 *
 * The giver has a shelf (kernels/device.h) for each rank whose device can find it; by the link it
 * only says that a parcel lies there.  Parcel n stays in slot n mod `slots` until the taker has
 * said that it has the parcel.  A parcel is a copy: its source may change meanwhile, and the giver
 * may give up or die, without harm to the taker. */
#ifndef RB_WORKER_PARCELS_H
#define RB_WORKER_PARCELS_H

#include "kernels/device.h"

#include <sys/uio.h>

struct rb_parcels {
    struct rb_shelf *shelf; /* NULL: the devices cannot exchange parcels */
    size_t room; /* of a slot: the largest parcel, rounded up to where the next may begin */
    uint32_t slots;
    uint64_t n; /* put, or taken */
};

/* open: at the giver, which returns the address (RB_SHELF_ADDRESS bytes).  find: at the taker.
 * RB_EUNSUPPORTED, RB_ENOMEM and a sentence: there is no such way, and *ret_parcels has no
 * shelf. */
int rb_parcels_open(struct rb_device *device, size_t room, uint32_t slots, void *ret_address,
                    struct rb_parcels *ret_parcels, struct rb_why *why);
int rb_parcels_find(struct rb_device *device, size_t room, uint32_t slots, const void *address,
                    struct rb_parcels *ret_parcels, struct rb_why *why);

/* Of the parcels put so far, the taker has said that it has `taken`: is no slot free?  Without a
 * shelf nothing waits for a slot. */
static inline bool rb_parcels_full(const struct rb_parcels *parcels, uint64_t taken)
{
    return parcels->shelf && parcels->n - taken >= parcels->slots;
}

/* Put or take the next parcel.  The pieces are memory of the device, together no more than a slot's
 * room.  The copy is done when these return. */
void rb_parcels_put(struct rb_parcels *parcels, const struct iovec *pieces, int n);
void rb_parcels_take(struct rb_parcels *parcels, const struct iovec *pieces, int n);

void rb_parcels_close(struct rb_parcels *parcels); /* an empty one is fine */

#endif
