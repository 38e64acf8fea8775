/* SPDX-License-Identifier: Apache-2.0 */
/* How long a device takes: from a profile where there is one, from FLOPs and bytes otherwise.
 *
 * Model + [profile] + device > [cost] > step, stages */
#ifndef RB_PLAN_SIMULATE_COST_H
#define RB_PLAN_SIMULATE_COST_H

#include "plan.pb-c.h"
#include "plan/simulate/cluster.h"

#include <stdbool.h>

/* What was measured on a core of speed 1: the first program of the model, by instruction. */
struct rb_cost_profile {
    const double *seconds; /* by instruction of the first program, with the sums of its
                              contributions; NULL: not measured */
    double flops, bytes;   /* a second: in a large product; in a copy behind microbatches */
    double update;         /* seconds an element of the state, by the optimizer; 0: by its bytes */
    uint32_t lanes;        /* microbatches that data parallelism computes together, */
    double together;       /* each in this part of its time; lanes 0 or 1: one by one */
};

/* The time of a rank's `microbatches` in lanes, as a part of their time one by one.  What the lanes
 * share is gone through once for each group that is computed together. */
double rb_cost_together(uint32_t microbatches, const struct rb_cluster_device *device,
                        const struct rb_cost_profile *profile);

/* The first program that trains `batch` samples, with or without recomputation; 0: there is
 * none. */
size_t rb_cost_find(const Rb__Model *model, int64_t batch, bool recomputes);

/* What a device does in `seconds` where no other device uses its node's memory. */
struct rb_cost {
    double seconds;
    double bytes; /* read and written meanwhile */
};

/* Do two devices take the same time for everything? */
bool rb_cost_alike(const struct rb_cluster_device *a, const struct rb_cluster_device *b);

/* An instruction of program p.  A device with `flops` takes the larger of products and bytes at its
 * speed; other devices take what the profile says, divided by their speed.  Where the profile has
 * no seconds, those are cores of the profile's FLOPs and bytes. */
struct rb_cost rb_cost_instruction(const Rb__Model *model, size_t p, size_t instruction,
                                   const struct rb_cluster_device *device,
                                   const struct rb_cost_profile *profile);

/* Program p of the model, once.  A program that was not measured takes as long as the first one in
 * proportion to its samples, or as the first one that computes again, in which a copy takes as long
 * as its original. */
struct rb_cost rb_cost_program(const Rb__Model *model, size_t p,
                               const struct rb_cluster_device *device,
                               const struct rb_cost_profile *profile);

/* Reading and writing so many bytes. */
struct rb_cost rb_cost_bytes(double bytes, const struct rb_cluster_device *device,
                             const struct rb_cost_profile *profile);

/* Adding to sums that touch so many bytes: nothing where the profile includes it. */
struct rb_cost rb_cost_sums(double bytes, const struct rb_cluster_device *device,
                            const struct rb_cost_profile *profile);

/* Bytes that fixed-point sums touch in a microbatch: the `first` of a step sets them. */
double rb_cost_sums_bytes(const Rb__Model *model, size_t p, bool first);

/* The optimizer's update of so many elements of the state. */
struct rb_cost rb_cost_update(const Rb__Model *model, double elements,
                              const struct rb_cluster_device *device,
                              const struct rb_cost_profile *profile);

#endif
