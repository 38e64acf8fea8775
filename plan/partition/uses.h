/* SPDX-License-Identifier: Apache-2.0 */
/* Which stages of a pipeline need which variables.
 *
 * Course > [uses] > replicas, schedule_pipeline */
#ifndef RB_PLAN_PARTITION_USES_H
#define RB_PLAN_PARTITION_USES_H

#include "base/error.h"
#include "plan.pb-c.h"

#include <stdint.h>

/* By variable: the stages that make summands of its gradient, and those that read it (1 << stage).
 */
void rb_uses_find(const Rb__Model *model, const Rb__Course *course, uint64_t *ret_gives,
                  uint64_t *ret_reads);

/* Is each variable that training changes one stage's alone?  RB_EUNSUPPORTED names one that is not.
 */
int rb_uses_separate(const Rb__Model *model, const Rb__Course *course, struct rb_why *why);

#endif
