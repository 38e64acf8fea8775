/* SPDX-License-Identifier: Apache-2.0 */
/* What the job file says of a pipeline that does not stop behind each step.
 *
 * Spec.parallel > [laps] > Model.asynchronous > schedule_pipeline, worker/stages/lap.h */
#ifndef RB_PLAN_COMPILE_LAPS_H
#define RB_PLAN_COMPILE_LAPS_H

#include "plan.pb-c.h"
#include "spec.pb-c.h"

#include <stdint.h>

/* NULL: the job's pipeline, if any, is synchronous.  Free with rb__asynchronous__free_unpacked. */
Rb__Asynchronous *rb_laps_of(const Rb__Spec *spec);

/* Its name in job files; NULL where `how` is NULL. */
const char *rb_laps_word(const Rb__Asynchronous *how);

/* The microbatch size that the schedule asks for; 0: any will do.  2bw needs as many microbatches
 * as stages; all others run a step as one microbatch. */
int64_t rb_laps_micro_batch(const Rb__Spec *spec);

#endif
