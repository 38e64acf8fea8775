/* SPDX-License-Identifier: Apache-2.0 */
/* What of the state the stages read, and make summands of: block by block.
 *
 * Model.programs, Plan.courses > [stage_state] > stage */
#ifndef RB_WORKER_STAGE_STATE_H
#define RB_WORKER_STAGE_STATE_H

#include "worker/stage.h"

void rb_stage_find_blocks(struct rb_stage *stage, const Rb__Plan *plan, const Rb__Model *model);

#endif
