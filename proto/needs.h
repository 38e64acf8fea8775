/* SPDX-License-Identifier: Apache-2.0 */
/* Which stages of a plan need a block: stages that make summands of its gradient, and stages that
 * read its weights.  So the planner counts on exactly what workers send.
 *
 * Model, Plan.courses or parts of the filters > [needs] > plan/replicas, plan/traffic,
 *                                                         worker/stages/stage_state
 *
 * A job may keep activations or compute them again: only the programs that train count
 * (Plan.recomputes), because copies may read weights of other stages. */
#ifndef RB_PROTO_NEEDS_H
#define RB_PROTO_NEEDS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* By block, stages as bits.  `plan` has stages, at most as many as there are bits, and says whether
 * it recomputes; each of its courses has stages for all instructions of a program of the model.
 * reads: may be NULL.  What a program says of tensors and variables that do not exist counts for
 * nothing. */
void rb_needs_find(const Rb__Model *model, const Rb__Plan *plan, uint64_t *ret_gives,
                   uint64_t *ret_reads);

/* The first block that ends behind element `at` of the state; the number of blocks if none does. */
size_t rb_needs_block(const Rb__Model *model, uint64_t at);

#endif
