/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches of one program, in a lane each (worker/lanes.h), whose instructions are run
 * together.
 *
 * attempt_compute, attempt_part > [together] > program: runs, sums */
#ifndef RB_WORKER_STEP_TOGETHER_H
#define RB_WORKER_STEP_TOGETHER_H

#include "worker/model.h"

struct rb_together {
    struct rb_model *model;
    int n;
    uint32_t microbatches[RB_KERNEL_EACH];
    const struct rb_runner *runners[RB_KERNEL_EACH]; /* borrowed */
    struct rb_program *programs[RB_KERNEL_EACH];     /* of the runners */
    struct rb_key keys[RB_KERNEL_EACH];
    size_t next; /* contribution to add next */
};

/* Add a microbatch and fill in its samples.  Before the first, all but `model` is zero. */
void rb_together_enter(struct rb_together *together, const struct rb_runner *runner,
                       uint32_t microbatch);

/* After each instruction (context: the struct rb_together): add what is ready to the sums at once,
 * as its memory may be used again. */
void rb_together_add(int instruction, void *context);

#endif
