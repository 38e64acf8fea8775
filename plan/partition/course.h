/* SPDX-License-Identifier: Apache-2.0 */
/* How a program runs in a pipeline: which stage runs which instructions, and what crosses.
 *
 * Program + cuts > [course] > Course > worker
 *
 * The forward part is cut into runs.  A backward instruction runs where the forward tensors and
 * weights that it reads are, but never in a later stage than the backward tensors that it reads.
 * So forward tensors go to later stages only and backward ones to earlier stages only, and stages
 * cannot wait for each other in a circle.  A weight that two layers share counts for the latest of
 * them that is not behind the gradient at hand.
 *
 * What reads neither samples nor other stages' work (rounded weights, constants), and what is
 * computed again for the backward pass, runs in every stage that reads it. */
#ifndef RB_PLAN_PARTITION_COURSE_H
#define RB_PLAN_PARTITION_COURSE_H

#include "base/error.h"
#include "plan.pb-c.h"

#include <stdint.h>

enum { RB_COURSE_STAGES = 64 };

/* cuts: by stage, the id of its first forward instruction; stage 0's is ignored.  ret_course: free
 * with rb__course__free_unpacked. */
int rb_course_make(const Rb__Model *model, uint32_t program, const uint32_t *cuts, uint32_t stages,
                   Rb__Course **ret_course, struct rb_why *why);

#endif
