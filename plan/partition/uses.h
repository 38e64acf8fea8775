/* SPDX-License-Identifier: Apache-2.0 */
/* Do stages of a pipeline get on without each other's variables?  (Which stages need a block:
 * proto/needs.h.)
 *
 * Course > [uses] > schedule_pipeline */
#ifndef RB_PLAN_PARTITION_USES_H
#define RB_PLAN_PARTITION_USES_H

#include "base/error.h"
#include "plan.pb-c.h"

/* Is each variable that training changes one stage's alone?  RB_EUNSUPPORTED names one that is not.
 */
int rb_uses_separate(const Rb__Model *model, const Rb__Course *course, struct rb_why *why);

#endif
