/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that this rank computes at once, instruction by instruction, so that it goes through
 * what they share only once: weights, and the sums of their gradients.
 *
 * Model, caches > [lanes] > together
 *
 * A lane is the program of a microbatch with an arena and inputs of its own.  All lanes share the
 * kernels, and what is made once from weights.  Which microbatches go together shows nowhere in the
 * bits: each is computed as it is alone (kernels/device.h), and the sums are integers. */
#ifndef RB_WORKER_LANES_H
#define RB_WORKER_LANES_H

#include "worker/model.h"

/* Bytes of a core's own cache, and of the cache it has of any kind, its part of the last level
 * included. */
struct rb_caches {
    uint64_t own, part;
};

/* How many microbatches to compute at once: as many as fit what they write (rb_program_working)
 * into a core's part of the caches.  1 (nothing is gained) where the trained weights stay in the
 * core's own cache, or are less than twice what one microbatch writes: then going further away for
 * what it writes costs what sharing gains.  Pure. */
uint32_t rb_lanes_count(uint64_t weights, uint64_t working, struct rb_caches caches);

/* Bytes of the weights that a program trains: all weights, or those of a part. */
uint64_t rb_lanes_weights(const Rb__Model *model, const Rb__Program *message);

/* rb_lanes_count on this machine, for a program that is ready. */
uint32_t rb_lanes_pay(const Rb__Model *model, const Rb__Program *message,
                      const struct rb_program *ready);

/* Makes model->lanes: `count` of them, RB_KERNEL_EACH at most; the first is `runner`.  last: the
 * runner of the last microbatch, in the same arena. */
int rb_lanes_make(struct rb_model *model, const struct rb_runner *runner,
                  const struct rb_runner *last, uint32_t count, struct rb_why *why);
/* Makes as many lanes as pay here, in place of those of another runner; does nothing where the
 * lanes of `runner` are there.  They take no more memory than the caches have (and a page here and
 * there). */
int rb_lanes_open(struct rb_model *model, const struct rb_runner *runner,
                  const struct rb_runner *last, struct rb_why *why);
void rb_lanes_close(struct rb_model *model);

#endif
