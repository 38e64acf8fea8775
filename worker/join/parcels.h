/* SPDX-License-Identifier: Apache-2.0 */
/* Parcels: parts of the state from a source's device to a newcomer's, past both hosts.
 *
 * feed (puts, and tells) > [parcels] > follow (takes, and says so)
 *
 * A source has a shelf (kernels/device.h) for each newcomer whose device can find it; what it then
 * says by the link is only that something lies there.  Parcel n is in slot n mod RB_PARCELS until
 * the newcomer has said that it has it.  It is a copy: what it was made of may change meanwhile,
 * and its source may give up or die, without harm to who takes it. */
#ifndef RB_WORKER_JOIN_PARCELS_H
#define RB_WORKER_JOIN_PARCELS_H

#include "worker/model.h"

#include <sys/uio.h>

enum { RB_PARCELS = 8 };

struct rb_parcels {
    struct rb_shelf *shelf; /* NULL: there is no such way */
    size_t room;            /* of a slot: the largest block */
    uint64_t n;             /* put, or taken */
};

/* At the source's, which tells the address (RB_SHELF_ADDRESS bytes), and at the newcomer's.
 * RB_EUNSUPPORTED, RB_ENOMEM and a sentence: there is no such way, and *ret_parcels is empty. */
int rb_parcels_open(const struct rb_model *model, void *ret_address, struct rb_parcels *ret_parcels,
                    struct rb_why *why);
int rb_parcels_find(const struct rb_model *model, const void *address,
                    struct rb_parcels *ret_parcels, struct rb_why *why);

/* The next one, of memory of the device; together no more than a block.  Done when they return. */
void rb_parcels_put(struct rb_parcels *parcels, const struct iovec *pieces, int n);
void rb_parcels_take(struct rb_parcels *parcels, const struct iovec *pieces, int n);

void rb_parcels_close(struct rb_parcels *parcels); /* an empty one is fine */

#endif
