/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled model in one line.
 *
 * Model > [summary] > rb_compiled.summary > rubatoctl */
#ifndef RB_PLAN_COMPILE_SUMMARY_H
#define RB_PLAN_COMPILE_SUMMARY_H

#include "plan/compile/compile.h"

/* Fill in parameters, microbatches and summary from the model. */
void rb_summary_write(const char *onnx_path, struct rb_compiled *compiled);

#endif
