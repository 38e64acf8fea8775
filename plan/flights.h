/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of the microbatches that are under way at once in a pipeline on cores.
 *
 * Model + stages > [flights] > plan/compile/footprint.h > the planner, Job.footprint
 *
 * A stage touches of each one's arena what it makes, and the first has as many of them as there are
 * stages.  What counts is the stage that has most, which need not be alike the others: of a
 * convolutional net it is the first by far. */
#ifndef RB_PLAN_FLIGHTS_H
#define RB_PLAN_FLIGHTS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* Bytes, of activations that are kept.  It is that of 2, 4, 8, ... stages, the next such number,
 * with a device each: so few numbers say it for whatever is left of a set. */
uint64_t rb_flights_find(const Rb__Model *model, uint32_t stages);

/* Of 2, 4, 8, ... stages, as far as `most` devices have them; the caller frees *ret_flights.
 * Returns how many. */
size_t rb_flights_list(const Rb__Model *model, uint32_t most, uint64_t **ret_flights);

/* In such a list that is not empty: the same as rb_flights_find, up to its `most`. */
uint64_t rb_flights_of(const uint64_t *flights, size_t n, uint32_t stages);

#endif
