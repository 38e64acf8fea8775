/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is timed, and its memory on a device: for timing*.c alone.
 *
 * timing > [timing_together, timing_update] */
#ifndef RB_WORKER_TIMING_TIMING_INSIDE_H
#define RB_WORKER_TIMING_TIMING_INSIDE_H

#include "worker/program/program.h"
#include "worker/timing/timing.h"

/* All that a program needs, on a device. */
struct rb_timing_place {
    struct rb_device *device;
    struct rb_program_memory memory;
    void *constants;
    int32_t *sums;
    uint32_t *largest;
    bool *overflow;
    struct rb_program *ready;
    struct rb_marks *marks; /* one in front of all instructions, and one after each */
};

/* Made-up samples. */
void rb_timing_fill(const Rb__Program *program, struct rb_program *ready);

/* Where a gradient goes. */
struct rb_fixed rb_timing_summand(const struct rb_timing_place *place, const Rb__Model *model,
                                  const Rb__Contribution *contribution);

/* All instructions, with their sums or without; marked: with marks between them. */
void rb_timing_run(const struct rb_timing_place *place, const Rb__Model *model, bool sums,
                   bool marked);

/* The same program as many times at once as pays and fits into memory; n is 1 where nothing is
 * gained. */
struct rb_timing_lanes {
    const struct rb_timing_place *place;
    const Rb__Model *model;
    int n;
    struct rb_program *programs[RB_KERNEL_EACH]; /* the first is the place's own */
    void *arenas[RB_KERNEL_EACH];
    size_t next; /* contribution to add next */
};
int rb_timing_lanes_open(const struct rb_timing_place *place, const Rb__Model *model,
                         struct rb_timing_lanes *lanes, struct rb_why *why);
void rb_timing_lanes_run(struct rb_timing_lanes *lanes);
void rb_timing_lanes_close(struct rb_timing_lanes *lanes);

/* Measures what the lanes gain: they and one program alone run in turn, until `most_ns` are
 * over. */
void rb_timing_together(struct rb_timing_lanes *lanes, uint64_t most_ns,
                        struct rb_timing_step *ret_step);

/* Measures what follows the microbatches of a step, in rounds until `most_ns` are over.  Leaves
 * ret_step as it was (unknown) if there is no memory for this. */
void rb_timing_update(struct rb_timing_lanes *lanes, uint64_t most_ns,
                      struct rb_timing_step *ret_step);

#endif
