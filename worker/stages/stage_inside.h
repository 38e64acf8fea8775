/* SPDX-License-Identifier: Apache-2.0 */
/* What a stage is read from, part by part.
 *
 * Plan.ranks              > stage_orders  > [stage]
 * Plan.courses            > stage_courses >
 * Model.programs, courses > stage_state   > */
#ifndef RB_WORKER_STAGES_STAGE_INSIDE_H
#define RB_WORKER_STAGES_STAGE_INSIDE_H

#include "worker/stages/stage.h"

/* Which rank runs which microbatch in which stage.  RB_EINVAL: not each microbatch is run once in
 * each stage, or ranks would wait for each other. */
int rb_stage_read_orders(struct rb_stage *stage, const Rb__Plan *plan, struct rb_why *why);

/* What this rank's stage runs of each program that trains, and what crosses its borders. */
int rb_stage_read_courses(struct rb_stage *stage, const Rb__Plan *plan, const Rb__Model *model,
                          struct rb_why *why);

/* The blocks of the state that each stage reads, and those that it makes summands of. */
void rb_stage_find_blocks(struct rb_stage *stage, const Rb__Plan *plan, const Rb__Model *model);

/* 0: a size that no tensor may have. */
size_t rb_stage_tensor_bytes(const Rb__Tensor *tensor);

#endif
