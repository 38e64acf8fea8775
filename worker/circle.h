/* SPDX-License-Identifier: Apache-2.0 */
/* Sums from GPU to GPU: whether a configuration's members can, agreed upon by its links.
 *
 * prepare > [circle] > links (coll), devices
 *
 * It is made beside the training, each time anew: a circle is of one configuration.  The links stay
 * for everything else, and for sums where there is none: behind a death nobody waits for one to be
 * made, and shards of sums have their own ways. */
#ifndef RB_WORKER_CIRCLE_H
#define RB_WORKER_CIRCLE_H

#include "coll/coll.h"
#include "kernels/device.h"

/* All members call it in the same place.  *ret_circle NULL: the links are used, and `ret_none` says
 * why.  An error is one of the links. */
int rb_circle_agree(struct rb_coll *coll, uint64_t tag, struct rb_device *device, int timeout_ms,
                    struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why);

#endif
