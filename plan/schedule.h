/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank computes what: the Plan of one configuration.
 *
 * Model + members > [schedule] > Plan (one list of orders a rank)
 *
 * Data parallel: microbatches 0..M-1 are handed out in runs that differ by at most one, the longer
 * ones first; a rank beyond M computes none and still reduces, votes and updates.  Behind a crash
 * each survivor keeps its microbatches, because their sums are in its memory, and gets a fair part
 * of those of the lost ranks. */
#ifndef RB_PLAN_SCHEDULE_H
#define RB_PLAN_SCHEDULE_H

#include "base/error.h"
#include "plan.pb-c.h"

#include <stdint.h>

struct rb_buffer;

enum { RB_SCHEDULE_LOST = -1 };

/* Microbatches of a step; 0 where the model's sizes make no sense. */
uint32_t rb_schedule_microbatches(const Rb__Model *model);

/* Owners: the rank that computes each of `total` microbatches. */
void rb_schedule_even(uint32_t total, uint32_t ranks, int32_t *ret_owners);

/* became: by old rank, its rank among the new `ranks`, or RB_SCHEDULE_LOST.  In index order each
 * microbatch of a lost rank goes to the rank that has fewest, the lowest where several do: shares
 * that differed by at most one still do.  ret_owners may be `owners`. */
void rb_schedule_after(uint32_t total, const int32_t *owners, const int32_t *became, uint32_t ranks,
                       int32_t *ret_owners);

/* "data parallel x3, 8 microbatches: 3 3 2"; the caller frees it. */
char *rb_schedule_summary(uint32_t total, const int32_t *owners, uint32_t ranks);

/* owners: NULL: even.  ret_plan: free with rb__plan__free_unpacked. */
int rb_schedule_plan(const Rb__Model *model, uint32_t ranks, const int32_t *owners,
                     Rb__Plan **ret_plan, struct rb_why *why);
int rb_schedule_data(const Rb__Model *model, uint32_t ranks, Rb__Plan **ret_plan,
                     struct rb_why *why);

void rb_plan_print(const Rb__Plan *plan, struct rb_buffer *out);

#endif
