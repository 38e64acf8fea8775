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
    struct rb_program *programs[RB_KERNEL_EACH];     /* theirs */
    struct rb_key keys[RB_KERNEL_EACH];
    size_t next; /* contribution to add next */
};

/* A further microbatch, whose samples are filled in; the first into what is zero but `model`. */
void rb_together_enter(struct rb_together *together, const struct rb_runner *runner,
                       uint32_t microbatch);

/* Behind each instruction (context: the struct rb_together): what is ready is added to the sums at
 * once, its memory may be used again. */
void rb_together_add(int instruction, void *context);

#endif
