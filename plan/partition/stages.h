/* SPDX-License-Identifier: Apache-2.0 */
/* Where to cut a chain of layers into pipeline stages, and how many devices to give each.
 *
 * layers + devices + link > [stages] > the stages whose slowest is as fast as can be
 *
 * Exact.  A stage of layers i..j on r devices takes (T + 4 (r-1) w / (r b)) / r a minibatch: its
 * forward and backward, and the sum of its gradients over the replicas.  The link in front of it
 * takes 2 a / (b r) for the activations and their gradients.  The slowest stage or link is what
 * counts. */
#ifndef RB_PLAN_PARTITION_STAGES_H
#define RB_PLAN_PARTITION_STAGES_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

struct rb_stages_layer {
    double seconds;     /* forward and backward of a minibatch */
    double weights;     /* bytes */
    double activations; /* bytes of a minibatch that go on to the next layer */
};

struct rb_stages_part {
    uint32_t first, count; /* layers */
    uint32_t devices;
    double seconds; /* a minibatch */
};

/* How long the slowest stage or link takes; ret_parts has room for as many as there are devices.
 * bandwidth: bytes a second; 0: no obstacle.  straight: one device a stage.  The cut may use fewer
 * devices than there are. */
double rb_stages_cut(const struct rb_stages_layer *layers, uint32_t n, uint32_t devices,
                     double bandwidth, bool straight, struct rb_stages_part *ret_parts,
                     uint32_t *ret_n);

/* The same for given parts: first, count and devices are read, seconds are written. */
double rb_stages_price(const struct rb_stages_layer *layers, double bandwidth,
                       struct rb_stages_part *parts, uint32_t n);

#endif
