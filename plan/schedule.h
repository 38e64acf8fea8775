/* SPDX-License-Identifier: Apache-2.0 */
/* Who computes what: the Plan of one configuration.
 *
 * Model + members > [schedule] > Plan (one list of orders a rank)
 *
 * Data parallel: microbatches 0..M-1 are handed out in runs that differ by at most one, the longer
 * ones first; a rank beyond M computes none and still reduces, votes and updates. */
#ifndef RB_PLAN_SCHEDULE_H
#define RB_PLAN_SCHEDULE_H

#include "base/error.h"
#include "plan.pb-c.h"

struct rb_buffer;

/* ret_plan: free with rb__plan__free_unpacked. */
int rb_schedule_data(const Rb__Model *model, uint32_t ranks, Rb__Plan **ret_plan,
                     struct rb_why *why);

void rb_plan_print(const Rb__Plan *plan, struct rb_buffer *out);

#endif
