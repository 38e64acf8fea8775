/* SPDX-License-Identifier: Apache-2.0 */
/* Which stages of a plan need a block: who makes summands of its gradient, who reads its weights.
 *
 * Model, Plan.courses or parts of the filters > [needs] > replicas, traffic
 *
 * Of a job that keeps activations or computes them again the programs count that train
 * (Plan.recomputes): copies may read weights of other stages.
 *
 * worker/stage_state.h finds the same for who trains. */
#ifndef RB_PLAN_NEEDS_H
#define RB_PLAN_NEEDS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* By block, stages as bits.  `plan` has stages, and says whether it recomputes; reads: NULL: nobody
 * asks. */
void rb_needs_find(const Rb__Model *model, const Rb__Plan *plan, uint64_t *ret_gives,
                   uint64_t *ret_reads);

#endif
