/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of the microbatches that are under way at once in a pipeline on cores.
 *
 * Model + stages > [flights] > plan/compile/footprint.h > the planner, Job.footprint
 *
 * Each microbatch under way has an arena, of which a stage touches what it makes.  The first stage
 * has as many microbatches under way as there are stages.  What counts is the stage that touches
 * most, and stages may differ: in a convolutional net the first has most by far. */
#ifndef RB_PLAN_FLIGHTS_H
#define RB_PLAN_FLIGHTS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* Bytes, where activations are kept.  `stages` is rounded up to the next of 2, 4, 8, ..., with one
 * device a stage, so a few numbers serve whatever is left of a set of devices. */
uint64_t rb_flights_find(const Rb__Model *model, uint32_t stages);

/* The same for 2, 4, 8, ... stages, as far as `most` devices allow; the caller frees *ret_flights.
 * Returns how many there are. */
size_t rb_flights_list(const Rb__Model *model, uint32_t most, uint64_t **ret_flights);

/* Looks up what rb_flights_find returns in a non-empty list of rb_flights_list, up to its
 * `most`. */
uint64_t rb_flights_of(const uint64_t *flights, size_t n, uint32_t stages);

#endif
