/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled model, ready to run forward through the workers' interpreter.
 *
 * model run, model test > [forward] > worker/program */
#ifndef RB_CTL_FORWARD_H
#define RB_CTL_FORWARD_H

#include "plan/compile/compile.h"
#include "worker/program/program.h"

/* All zero except `compiled` before opening. */
struct rb_forward {
    struct rb_compiled compiled;
    struct rb_program_memory memory;
    struct rb_program *program;
};

/* Memory, weights and kernels for the one program of `compiled`. */
int rb_forward_open(struct rb_device *device, struct rb_forward *forward, struct rb_why *why);
/* Run the program once, with the current inputs. */
int rb_forward_run(struct rb_device *device, struct rb_forward *forward, struct rb_why *why);
void rb_forward_done(struct rb_device *device, struct rb_forward *forward);

#endif
