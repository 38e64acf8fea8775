/* SPDX-License-Identifier: Apache-2.0 */
/* Parcels: from one rank's device to another's, past both hosts.
 *
 * feed, flight (put, and tell) > [parcels] > follow, flight (take, and say so)
 *
 * Who gives has a shelf (kernels/device.h) for each rank whose device can find it; what it then
 * says by the link is only that something lies there.  Parcel n is in slot n mod `slots` until the
 * other has said that it has it.  It is a copy: what it was made of may change meanwhile, and who
 * gave it may give up or die, without harm to who takes it. */
#ifndef RB_WORKER_PARCELS_H
#define RB_WORKER_PARCELS_H

#include "kernels/device.h"

#include <sys/uio.h>

struct rb_parcels {
    struct rb_shelf *shelf; /* NULL: there is no such way */
    size_t room;            /* of a slot: the largest parcel, and where the next may begin */
    uint32_t slots;
    uint64_t n; /* put, or taken */
};

/* Where they are given, which tells the address (RB_SHELF_ADDRESS bytes), and where they are taken.
 * RB_EUNSUPPORTED, RB_ENOMEM and a sentence: there is no such way, and *ret_parcels has no shelf.
 */
int rb_parcels_open(struct rb_device *device, size_t room, uint32_t slots, void *ret_address,
                    struct rb_parcels *ret_parcels, struct rb_why *why);
int rb_parcels_find(struct rb_device *device, size_t room, uint32_t slots, const void *address,
                    struct rb_parcels *ret_parcels, struct rb_why *why);

/* Of so many put, the other has said that it has `taken`: is no slot free?  Where there is no shelf
 * nothing waits for one. */
static inline bool rb_parcels_full(const struct rb_parcels *parcels, uint64_t taken)
{
    return parcels->shelf && parcels->n - taken >= parcels->slots;
}

/* The next one, of memory of the device; together no more than a slot's room.  Done when they
 * return. */
void rb_parcels_put(struct rb_parcels *parcels, const struct iovec *pieces, int n);
void rb_parcels_take(struct rb_parcels *parcels, const struct iovec *pieces, int n);

void rb_parcels_close(struct rb_parcels *parcels); /* an empty one is fine */

#endif
