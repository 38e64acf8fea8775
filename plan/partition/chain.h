/* SPDX-License-Identifier: Apache-2.0 */
/* A program as a chain that can be cut behind each forward instruction.
 *
 * Program + costs > [chain] > stages, pipeline
 *
 * A cut is crossed by the tensors that are made in front of it and read behind it by the forward
 * pass; a tensor that is read much later crosses every cut on the way.  A backward instruction
 * belongs to the layer that makes the forward tensors that it reads. */
#ifndef RB_PLAN_PARTITION_CHAIN_H
#define RB_PLAN_PARTITION_CHAIN_H

#include "plan/simulate/cost.h"

struct rb_chain_layer {
    double forward, backward; /* seconds of a microbatch */
    double elements;          /* of the trained variables that no earlier layer uses */
    double made;              /* bytes of the tensors that it makes */
    double crossing;          /* bytes that cross the cut behind it */
};

/* The layers of the first program of the model; the caller frees *ret_layers.  0: it does not
 * train. */
uint32_t rb_chain_layers(const Rb__Model *model, const struct rb_cluster_device *device,
                         const struct rb_cost_profile *profile, struct rb_chain_layer **ret_layers);

#endif
