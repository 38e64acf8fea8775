/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between ranks of memory that is a device's (kernels/device.h, "Two sides").
 *
 * gather, hand-over, taking > [carry] > rb_circle_move, or as:
 * openings, laps, collect   > [carry] > rb_coll_move */
#ifndef RB_WORKER_CARRY_H
#define RB_WORKER_CARRY_H

#include "coll/coll.h"
#include "kernels/device.h"

/* As rb_coll_move: what this rank gives is the device's side, what it is given goes there.
 *
 * circle: from device to device, and all of the memory is theirs; the host's sides stay as they
 * are.  NULL: by the links, and memory that is not the device's is as it is. */
int rb_carry(struct rb_device *device, struct rb_coll *coll, struct rb_circle *circle, uint64_t tag,
             const struct rb_coll_move *moves, size_t n, struct rb_why *why);

#endif
