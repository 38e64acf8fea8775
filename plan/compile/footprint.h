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

/* Of a job on a device, in bytes. */
struct rb_footprint {
    uint64_t everywhere;  /* on each device: weights, local sums, constants */
    uint64_t held;        /* by a device with all of the state: moments and reduced sums */
    uint64_t kept, again; /* activations of a microbatch: kept; computed again, as far as the Model
                             has programs that do so */
};
struct rb_footprint rb_footprint_of(const Rb__Model *model);

/* Are activations kept or computed again as each configuration says (Program.recomputes)? */
bool rb_footprint_has_both(const Rb__Model *model);

/* On each of `ranks` devices, with `copies` of each block (0: all of them everywhere): weights,
 * sums, and activations everywhere; moments and reduced sums as far as they are held.  What a
 * library or a checkpoint takes for a while is not counted. */
uint64_t rb_footprint_total(const struct rb_footprint *footprint, bool recomputes, uint32_t copies,
                            uint32_t ranks);
uint64_t rb_footprint_bytes(const Rb__Model *model, uint32_t copies, uint32_t ranks); /* kept */

/* The same in so many stages (0: none), with microbatches under way.
 *
 * Cores take memory only for what they touch, so the microbatches under way take the place of the
 * arena: `flights` bytes where activations are kept (plan/flights.h), and less in proportion to the
 * arena where they are computed again.  On GPUs (flights: 0) each microbatch under way has an arena
 * beside it, in the first stage as many as there are stages, and there is one more, because the
 * last microbatch may have a size of its own.  What crosses between stages, and the shelves for it,
 * is not counted. */
uint64_t rb_footprint_staged(const struct rb_footprint *footprint, bool recomputes, uint32_t copies,
                             uint32_t ranks, uint32_t stages, uint64_t flights);

/* `flights` where they are not known: stages that are alike have about one arena under way, and
 * touch at most another of other microbatches. */
uint64_t rb_footprint_flights(const struct rb_footprint *footprint);

/* Does the job run on GPUs? */
bool rb_footprint_on_gpus(const Rb__Spec *spec, const Rb__Model *model);

/* Does the job fit into `limit` on any number of devices that it may have, with as few copies as
 * `spec` allows, in the pipeline that `spec` pins? */
enum rb_footprint_fit { RB_FOOTPRINT_MISFITS, RB_FOOTPRINT_FITS_SOME, RB_FOOTPRINT_FITS };
enum rb_footprint_fit rb_footprint_fits(const Rb__Spec *spec, const Rb__Model *model,
                                        bool recomputes, uint64_t limit);

/* The limit of the job file; 0: it has none. */
uint64_t rb_footprint_limit(const Rb__Spec *spec);

/* The replicas that `spec` asks for; where it leaves them open, all (0) if that fits into the limit
 * of the job file, or into `machine` (0: unknown) where there is no limit, else 2.
 *
 * RB_EINVAL: the job file's own limit is too low for the most devices that it may have. */
int rb_footprint_replicas(const Rb__Spec *spec, const Rb__Model *model, uint64_t machine,
                          uint32_t *ret_replicas, struct rb_why *why);

/* Does `spec` leave the replicas open, and does all of the state fit, so that `replicas` are 0?
 * Then each configuration may have all of the state or 2 replicas: both outlive a death. */
bool rb_footprint_open(const Rb__Spec *spec, uint32_t replicas);

#endif
