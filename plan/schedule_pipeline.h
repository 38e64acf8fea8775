/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline as a Plan: the same step, in stages; or a lap of steps.
 *
 * Model + members + stages > [schedule] > Plan (one list of orders a rank) > worker
 *
 * Each microbatch goes through all stages; the ranks of a stage take its microbatches in turn.  A
 * rank runs as many microbatches forward ahead as there are ranks in later stages for each rank of
 * its own, then backward and forward in turn (1F1B).  The kernels that make a contribution are
 * those that make it where one rank runs the whole program, and sums do not depend on their order:
 * so the bits are those of data parallelism.
 *
 * An asynchronous pipeline (Model.asynchronous) has orders for a whole lap: the microbatches of
 * each step follow those of the step before, taken ahead in the same way, one rank a stage.  For
 * spectrain the orders say for each pass how many updates ahead its weights are predicted: counted
 * from the lap as it is played at the stages' own times (plan/partition/versions.h), or by the
 * paper's formula.
 *
 * Pure, and a function of the model and the two numbers alone, so all agents plan alike. */
#ifndef RB_PLAN_SCHEDULE_PIPELINE_H
#define RB_PLAN_SCHEDULE_PIPELINE_H

#include "base/error.h"
#include "plan.pb-c.h"
#include "spec.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_buffer;

/* Stages that `ranks` ranks run where the pin asks for `pinned`; 0: no pipeline, data parallel. */
uint32_t rb_pipeline_stages(uint32_t pinned, uint32_t ranks);

/* Ranks of a stage; stage 0 has the lowest, and so on. */
uint32_t rb_pipeline_ranks(uint32_t stages, uint32_t ranks, uint32_t stage);

/* "pipeline of 2 stages x3: 2 1, 1F1B, 8 microbatches"; schedule: NULL: 1F1B */
void rb_pipeline_text(uint32_t stages, uint32_t ranks, uint32_t microbatches, const char *schedule,
                      struct rb_buffer *out);

/* Does the job file say how the job runs?  Else the planner may. */
bool rb_pipeline_pinned(const Rb__Spec *spec);

/* Where the forward part is cut, in the form of rb_course_make, so that the slowest stage is as
 * quick as can be.  RB_EUNSUPPORTED: there are fewer instructions than stages. */
int rb_pipeline_cut(const Rb__Model *model, uint32_t ranks, uint32_t stages, uint32_t *ret_cuts,
                    struct rb_why *why);

/* ret_plan: free with rb__plan__free_unpacked. */
int rb_pipeline_plan(const Rb__Model *model, uint32_t ranks, uint32_t stages, Rb__Plan **ret_plan,
                     struct rb_why *why);

/* Can the model run as its job file pins it?  RB_EUNSUPPORTED: no, and the message names the
 * key. */
int rb_pipeline_check(const Rb__Spec *spec, const Rb__Model *model, struct rb_why *why);

#endif
