/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of device memory between ranks (kernels/device.h, "Two sides").
 *
 * gather, hand-over, taking > [carry] > rb_circle_move, or as:
 * openings, laps, collect   > [carry] > rb_coll_move */
#ifndef RB_WORKER_CARRY_H
#define RB_WORKER_CARRY_H

#include "coll/coll.h"
#include "kernels/device.h"

/* As rb_coll_move: what this rank gives is read from the device's side, what it receives is written
 * there.
 *
 * circle: the move goes from device to device; all memory must be the devices', and the host's
 * sides stay as they are.  NULL: the move goes by the links, and memory that is not the device's is
 * moved as it is. */
int rb_carry(struct rb_device *device, struct rb_coll *coll, struct rb_circle *circle, uint64_t tag,
             const struct rb_coll_move *moves, size_t n, struct rb_why *why);

#endif
