/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/simulate/simulate_inside.h"

#include "base/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The part of a resource's capacity below which it counts as used up. */
static const double sliver = 1e-9;

/* The task's work for a unit of the resource that it uses most of. */
static double weight_of(const struct rb_simulate_task *task)
{
    double most = 0;

    for (int i = 0; i < task->n_uses; i++)
        if (task->uses[i].amount > most)
            most = task->uses[i].amount;
    return most > 0 ? 1 / most : 1;
}

static bool limited(const struct rb_simulate_task *task,
                    const struct rb_simulate_resource *resources)
{
    for (int i = 0; i < task->n_uses; i++) {
        const struct rb_simulate_resource *resource = &resources[task->uses[i].resource];

        if (task->uses[i].amount > 0 && resource->free <= sliver * resource->capacity)
            return true;
    }
    return false;
}

/* How far all tasks whose rates still rise can rise together. */
static double find_rise(const struct rb_simulate_task *tasks, const int *rising, size_t n,
                        const struct rb_simulate_resource *resources, const double *weights,
                        const double *rates)
{
    double rise = INFINITY;

    for (size_t i = 0; i < n; i++) {
        const struct rb_simulate_task *task = &tasks[rising[i]];

        if (task->rate > 0)
            rise = fmin(rise, (task->rate - rates[rising[i]]) / weights[rising[i]]);
        for (int u = 0; u < task->n_uses; u++) {
            const struct rb_simulate_resource *resource = &resources[task->uses[u].resource];

            if (resource->wanted > 0)
                rise = fmin(rise, resource->free / resource->wanted);
        }
    }
    return rise;
}

static void count_wanted(const struct rb_simulate_task *tasks, const int *rising, size_t n,
                         struct rb_simulate_resource *resources, const double *weights)
{
    for (size_t i = 0; i < n; i++)
        for (int u = 0; u < tasks[rising[i]].n_uses; u++)
            resources[tasks[rising[i]].uses[u].resource].wanted = 0;
    for (size_t i = 0; i < n; i++)
        for (int u = 0; u < tasks[rising[i]].n_uses; u++) {
            const struct rb_simulate_use *use = &tasks[rising[i]].uses[u];

            resources[use->resource].wanted += use->amount * weights[rising[i]];
        }
}

static void take(const struct rb_simulate_task *tasks, const int *rising, size_t n, double rise,
                 struct rb_simulate_resource *resources, const double *weights, double *rates)
{
    for (size_t i = 0; i < n; i++) {
        rates[rising[i]] += rise * weights[rising[i]];
        for (int u = 0; u < tasks[rising[i]].n_uses; u++) {
            const struct rb_simulate_use *use = &tasks[rising[i]].uses[u];

            resources[use->resource].free -= rise * weights[rising[i]] * use->amount;
        }
    }
}

/* weights, ret_rates: by task; only those of `flowing` are written. */
void rb_simulate_rates(const struct rb_simulate_task *tasks, const int *flowing, size_t n,
                       struct rb_simulate_resource *resources, size_t n_resources, double *weights,
                       double *ret_rates)
{
    RB_CLEANUP(rb_freep) int *rising = rb_alloc((n + 1) * sizeof *rising);
    size_t left = 0;

    for (size_t i = 0; i < n_resources; i++)
        resources[i].free = resources[i].capacity;
    for (size_t i = 0; i < n; i++) {
        const struct rb_simulate_task *task = &tasks[flowing[i]];

        weights[flowing[i]] = weight_of(task);
        ret_rates[flowing[i]] = task->n_uses ? 0 : task->rate > 0 ? task->rate : INFINITY;
        if (task->n_uses)
            rising[left++] = flowing[i];
    }
    while (left) {
        double rise;
        size_t kept = 0;

        count_wanted(tasks, rising, left, resources, weights);
        rise = find_rise(tasks, rising, left, resources, weights, ret_rates);
        take(tasks, rising, left, rise, resources, weights, ret_rates);
        for (size_t i = 0; i < left; i++) {
            const struct rb_simulate_task *task = &tasks[rising[i]];
            bool full = task->rate > 0 && ret_rates[rising[i]] >= task->rate * (1 - sliver);

            if (!full && !limited(task, resources))
                rising[kept++] = rising[i];
        }
        if (kept == left)
            break; /* rounding: no rate rises any more */
        left = kept;
    }
}
