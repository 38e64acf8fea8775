/* SPDX-License-Identifier: Apache-2.0 */
/* Filters and neurons split over devices, as a job's Model has it and as a Plan says it.
 *
 * spec.parallel.hypergraph > [split] > Model.programs of every part > [schedule_split] > Plan
 *
 * For each number of parts up to the pin the filters are partitioned (plan/partition/filters.h),
 * and each part gets programs of its own (graph/split.h).  Filters of a layer that are alike change
 * places, so that the filters of a part are neighbours: the part's rows of a weight are one range
 * of the state for each group, and blocks are cut where parts meet.  So at any number of devices
 * each block has one part that makes its gradient and reads it, and no other part reads it.
 *
 * A part sums a product over all that it reads, as one device does; gradients of activations are
 * added part by part.  So losses and weights agree with those of one device within rounding (1e-5),
 * where other plans have the same bits. */
#ifndef RB_PLAN_SPLIT_H
#define RB_PLAN_SPLIT_H

#include "base/error.h"
#include "plan.pb-c.h"
#include "spec.pb-c.h"

#include <stdint.h>

struct rb_buffer;
struct rb_compiled;

/* Add what a job whose filters are split needs; nothing where none is pinned.  RB_EUNSUPPORTED: the
 * model cannot be split; the message names the node and the operator that stand in the way. */
int rb_split_make(const Rb__Spec *spec, const char *numeric_class, struct rb_compiled *compiled,
                  struct rb_why *why);

/* The program that has `part` of `parts` and takes `batch` samples; -1: there is none. */
int rb_split_program(const Rb__Model *model, uint32_t parts, uint32_t part, uint32_t batch);

/* "filters split in 2 parts x4, 8 microbatches" */
void rb_split_text(uint32_t parts, uint32_t ranks, uint32_t microbatches, struct rb_buffer *out);

/* Parts have ranks as stages do (plan/schedule_pipeline.h).  A microbatch is in one rank of each
 * part; ranks beyond a multiple of `parts` have none.  ret_plan: free with
 * rb__plan__free_unpacked. */
int rb_split_plan(const Rb__Model *model, uint32_t ranks, uint32_t parts, Rb__Plan **ret_plan,
                  struct rb_why *why);

#endif
