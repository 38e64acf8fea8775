/* SPDX-License-Identifier: Apache-2.0 */
/* Moves between ranks of memory that is a device's (kernels/device.h, "Two sides").
 *
 * step, opening, collect > [carry] > rb_coll_move */
#ifndef RB_WORKER_CARRY_H
#define RB_WORKER_CARRY_H

#include "coll/coll.h"
#include "kernels/device.h"

/* As rb_coll_move: what this rank gives is the device's side, what it is given goes there.  Memory
 * that is not the device's is as it is. */
int rb_carry(struct rb_device *device, struct rb_coll *coll, uint64_t tag,
             const struct rb_coll_move *moves, size_t n, struct rb_why *why);

#endif
