/* SPDX-License-Identifier: Apache-2.0 */
/* Do the stages of a pipeline need none of each other's variables?  (Which stages need a block:
 * proto/needs.h.)
 *
 * Course > [uses] > schedule_pipeline */
#ifndef RB_PLAN_PARTITION_USES_H
#define RB_PLAN_PARTITION_USES_H

#include "base/error.h"
#include "plan.pb-c.h"

/* Does each variable that training changes belong to one stage alone?  RB_EUNSUPPORTED names one
 * that does not. */
int rb_uses_separate(const Rb__Model *model, const Rb__Course *course, struct rb_why *why);

#endif
