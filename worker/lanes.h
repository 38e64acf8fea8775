/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that this rank computes at once, instruction by instruction, so that what they share
 * is gone through once: weights, and the sums of their gradients.
 *
 * Model, caches > [lanes] > together
 *
 * A lane is the program of a microbatch with an arena and inputs of its own, and kernels that all
 * lanes share, as they share what is made once of weights.  Which microbatches go together shows
 * nowhere in the bits: each is computed as it is alone (kernels/device.h), and the sums are
 * integers. */
#ifndef RB_WORKER_LANES_H
#define RB_WORKER_LANES_H

#include "worker/model.h"

/* Bytes of a core's own cache, and of what it has of any, the last one's part included. */
struct rb_caches {
    uint64_t own, part;
};

/* How many at once: as many as have what they write (rb_program_working) in a core's part of the
 * caches, where the trained weights do not stay in its own and are at least twice that: of less,
 * what goes further away costs what is shared.  1: nothing is gained.  Pure. */
uint32_t rb_lanes_count(uint64_t weights, uint64_t working, struct rb_caches caches);

/* Bytes of the weights that a program trains: all of them, or a part's. */
uint64_t rb_lanes_weights(const Rb__Model *model, const Rb__Program *message);

/* How many that is here, for a program that is ready. */
uint32_t rb_lanes_pay(const Rb__Model *model, const Rb__Program *message,
                      const struct rb_program *ready);

/* Makes model->lanes, of which the first is `runner`: so many, RB_KERNEL_EACH at most.  last: what
 * runs the last microbatch, in the same arena. */
int rb_lanes_make(struct rb_model *model, const struct rb_runner *runner,
                  const struct rb_runner *last, uint32_t count, struct rb_why *why);
/* As many as pay here, which take no more memory than caches have (and a page here and there), in
 * place of those of another runner; nothing where they are there. */
int rb_lanes_open(struct rb_model *model, const struct rb_runner *runner,
                  const struct rb_runner *last, struct rb_why *why);
void rb_lanes_close(struct rb_model *model);

#endif
