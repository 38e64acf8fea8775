/* SPDX-License-Identifier: Apache-2.0 */
/* How long a microbatch takes this rank, of late.
 *
 * step (clock) > [pace] > vote record, Row > the coordinator, which cuts shares by it
 *
 * Pure.  A step counts with the mean over its microbatches, which includes the time that others
 * take on its core; of the last steps the median counts, which leaves out a page fault or a
 * checkpoint. */
#ifndef RB_WORKER_STEP_PACE_H
#define RB_WORKER_STEP_PACE_H

#include <stdint.h>

enum { RB_PACE_STEPS = 15, RB_PACE_LEAST = 5 };

struct rb_pace {
    uint64_t ns[RB_PACE_STEPS]; /* a microbatch, by step: a ring */
    unsigned n, at;
};

/* A step has computed so many microbatches in `ns`; 0 microbatches: nothing is learned. */
void rb_pace_note(struct rb_pace *pace, uint64_t ns, uint32_t microbatches);

/* Microseconds, at least 1; 0: there have been fewer than RB_PACE_LEAST steps. */
uint32_t rb_pace_us(const struct rb_pace *pace);

#endif
