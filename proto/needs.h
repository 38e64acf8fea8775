/* SPDX-License-Identifier: Apache-2.0 */
/* Which stages of a plan need a block: who makes summands of its gradient, who reads its weights.
 * What the planner counts on is what workers send.
 *
 * Model, Plan.courses or parts of the filters > [needs] > plan/replicas, plan/traffic,
 *                                                         worker/stages/stage_state
 *
 * Of a job that keeps activations or computes them again the programs count that train
 * (Plan.recomputes): copies may read weights of other stages. */
#ifndef RB_PROTO_NEEDS_H
#define RB_PROTO_NEEDS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* By block, stages as bits.  `plan` has stages, as many as there are bits at most, and says whether
 * it recomputes; each of its courses has stages for all instructions of a program of the model.
 * reads: NULL: nobody asks.  What a program says of tensors and variables that are not there counts
 * for nothing. */
void rb_needs_find(const Rb__Model *model, const Rb__Plan *plan, uint64_t *ret_gives,
                   uint64_t *ret_reads);

/* The first block that ends behind element `at` of the state; as many as there are: none does. */
size_t rb_needs_block(const Rb__Model *model, uint64_t at);

#endif
