/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of tasks that flow at the same time.
 *
 * simulate > [simulate_rates] */
#ifndef RB_PLAN_SIMULATE_SIMULATE_INSIDE_H
#define RB_PLAN_SIMULATE_SIMULATE_INSIDE_H

#include "plan/simulate/simulate.h"

struct rb_simulate_resource {
    double capacity;
    double free, wanted; /* while rates are found */
};

/* weights: scratch, by task.
 *
 * Max-min: all rates rise together, each in the units of the resource that its task uses most of,
 * until the task reaches its own limit or a resource is used up. */
void rb_simulate_rates(const struct rb_simulate_task *tasks, const int *flowing, size_t n,
                       struct rb_simulate_resource *resources, size_t n_resources, double *weights,
                       double *ret_rates);

#endif
