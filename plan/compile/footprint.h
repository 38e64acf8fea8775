/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a job takes on a device, and how many replicas of its state fit.
 *
 * Model + spec.state + spec.memory > [footprint] > Job.replicas */
#ifndef RB_PLAN_COMPILE_FOOTPRINT_H
#define RB_PLAN_COMPILE_FOOTPRINT_H

#include "base/error.h"
#include "plan.pb-c.h"
#include "spec.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

/* Floats that the optimizer keeps beside each weight. */
uint32_t rb_footprint_moments(const Rb__Model *model);

/* On each of `ranks` devices, with `copies` of each block (0: all of them everywhere): weights,
 * sums, and activations everywhere; moments and reduced sums as far as they are held.  What a
 * library or a checkpoint takes for a while is not in it. */
uint64_t rb_footprint_bytes(const Rb__Model *model, uint32_t copies, uint32_t ranks);

/* What microbatches under way in a pipeline of so many stages take of a GPU beside that: an arena
 * each, in the first stage as many as there are stages, and another, for the last microbatch may be
 * of its own size.  What crosses between stages, and shelves for it, is not in it.  0: on cores,
 * which take memory for what they touch alone. */
uint64_t rb_footprint_flights(const Rb__Spec *spec, const Rb__Model *model, uint32_t stages);

/* As rb_footprint_bytes with as few copies as `spec` allows, on the most devices that it allows, in
 * the pipeline that it pins. */
uint64_t rb_footprint_least(const Rb__Spec *spec, const Rb__Model *model);

/* Of the job file; 0: it says none. */
uint64_t rb_footprint_limit(const Rb__Spec *spec);

/* What `spec` asks for; where it leaves it open, all (0) if that fits into the limit of the job
 * file, or into `machine` (0: unknown) where it has none, else 2.
 *
 * RB_EINVAL: the job file's own limit is too low for the most devices that it may have. */
int rb_footprint_replicas(const Rb__Spec *spec, const Rb__Model *model, uint64_t machine,
                          uint32_t *ret_replicas, struct rb_why *why);

/* Does `spec` leave the replicas open, and does all of the state fit, so that `replicas` are 0?
 * Then each configuration may have all of it or 2: both outlive a death. */
bool rb_footprint_open(const Rb__Spec *spec, uint32_t replicas);

#endif
