/* SPDX-License-Identifier: Apache-2.0 */
/* What the job file says of training, in the form that workers read, and its digest. */
#ifndef RB_PLAN_COMPILE_JOB_H
#define RB_PLAN_COMPILE_JOB_H

#include "base/error.h"
#include "data/source.h"
#include "plan.pb-c.h"
#include "spec.pb-c.h"

/* Seed, batch, optimizer, schedule, limits: all of `model` that comes from the job file alone. */
void rb_job_fill(const Rb__Spec *spec, int64_t micro_batch, Rb__Model *model);

/* A source in the form by which a worker finds it again; free with rb__source__free_unpacked. */
Rb__Source *rb_job_source(const struct rb_source *from);

/* Set model->settings, everything in the job file that decides bits, and its digest.  They leave
 * out the job's name, devices, checkpoints, evaluation, and the number of steps unless the schedule
 * depends on it. */
int rb_job_digest(const Rb__Spec *spec, const char weights_digest[33], Rb__Model *model,
                  struct rb_why *why);

#endif
