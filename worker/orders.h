/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as it comes from the disk: read, and checked against the model.
 *
 * Configure.plan_path, or plan > [orders] > configuration
 *
 * Stages' orders and courses are checked when a rank reads its own (worker/stages/stage.h), the
 * holders of blocks in worker/state/placement.h. */
#ifndef RB_WORKER_ORDERS_H
#define RB_WORKER_ORDERS_H

#include "base/error.h"
#include "control.pb-c.h"
#include "plan.pb-c.h"

#include <stdint.h>

/* The caller frees *ret_plan by rb__plan__free_unpacked.  RB_EINVAL: the plan is not for `ranks`
 * ranks, a microbatch is not computed once, or a rank does not reduce what all reduce, vote once
 * and then update. */
int rb_orders_read(const Rb__Configure *order, uint32_t ranks, const Rb__Model *model,
                   Rb__Plan **ret_plan, struct rb_why *why);

#endif
