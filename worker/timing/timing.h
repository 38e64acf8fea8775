/* SPDX-License-Identifier: Apache-2.0 */
/* A training program timed on a device, with made-up samples and weights: what a kernel takes does
 * not depend on them.
 *
 * Model > [timing] > Profile, for the planner; profile, for rubatoctl profile */
#ifndef RB_WORKER_TIMING_TIMING_H
#define RB_WORKER_TIMING_TIMING_H

#include "worker/timing/profile.h"

struct rb_timing {
    int warm, runs, least; /* runs: at most; once `most_ns` are over, `least` are enough */
    uint64_t most_ns;
    bool sums; /* what instructions contribute is added up as in training, and counts as theirs */
};

/* What a step is beside its microbatches one by one.  Where there are enough of them a core
 * computes so many together (worker/lanes.h), each of them in this part of the time that it takes
 * alone. */
struct rb_timing_step {
    uint32_t lanes; /* 1: one by one */
    double together;
    double copied; /* bytes a second, read and written, in a copy behind those; 0: unknown */
    double update; /* seconds an element of the state, behind those; 0: unknown */
};

/* The first program of the model, instruction by instruction, between marks.  A GPU has work queued
 * in front of each run, so that what it takes to ask for a kernel shows only where that takes
 * longer than all kernels do: jobs ask for all of them at once (rb_tape_play).  ret_step:
 * NULL: nobody asks; else with `how->sums`. */
int rb_timing_model(struct rb_device *device, const Rb__Model *model, const struct rb_timing *how,
                    struct rb_profile **ret_profile, struct rb_timing_step *ret_step,
                    struct rb_why *why);

/* Of a device that has memory of its own, bytes a second: what a core of its host copies, and what
 * goes between the two memories the slower way.  Both 0: it has none. */
struct rb_timing_ways {
    double host, crossing;
};
int rb_timing_ways(struct rb_device *device, struct rb_timing_ways *ret_ways, struct rb_why *why);

/* A Model message in a file on device `index` of this kind: `rubato-worker --profile`.
 * ret_profile: free with rb__profile__free_unpacked. */
int rb_timing_of_file(const char *kind, int index, const char *path, Rb__Profile **ret_profile,
                      struct rb_why *why);

#endif
