/* SPDX-License-Identifier: Apache-2.0 */
/* A training program timed on a device, with made-up samples and weights: the time of a kernel does
 * not depend on them.
 *
 * Model > [timing] > Profile, for the planner; profile, for rubatoctl profile */
#ifndef RB_WORKER_TIMING_TIMING_H
#define RB_WORKER_TIMING_TIMING_H

#include "worker/timing/profile.h"

struct rb_timing {
    int warm, runs, least; /* runs: at most; once `most_ns` are over, `least` are enough */
    uint64_t most_ns;
    bool sums; /* contributions are added up as in training, and count for their instructions */
};

/* The rest of a step, beside its microbatches one by one.  Where a step has enough microbatches, a
 * core computes `lanes` of them together (worker/lanes.h), each in `together` times what it takes
 * alone. */
struct rb_timing_step {
    uint32_t lanes; /* 1: one by one */
    double together;
    double copied; /* bytes a second, read and written, in a copy after those; 0: unknown */
    double update; /* seconds an element of the state, after them; 0: unknown */
};

/* Times the first program of the model, instruction by instruction, between marks.  On a GPU work
 * is queued before each run, so that the time to launch a kernel shows only if launching takes
 * longer than all kernels do: jobs launch all of them at once (rb_tape_play).  ret_step: NULL if it
 * is not needed; else with `how->sums`. */
int rb_timing_model(struct rb_device *device, const Rb__Model *model, const struct rb_timing *how,
                    struct rb_profile **ret_profile, struct rb_timing_step *ret_step,
                    struct rb_why *why);

/* Of a device with memory of its own, bytes a second: what a core of its host copies, and what goes
 * between the two memories in the slower direction.  Both 0: it has no memory of its own. */
struct rb_timing_ways {
    double host, crossing;
};
int rb_timing_ways(struct rb_device *device, struct rb_timing_ways *ret_ways, struct rb_why *why);

/* A Model message in a file on device `index` of this kind: `rubato-worker --profile`.
 * ret_profile: free with rb__profile__free_unpacked. */
int rb_timing_of_file(const char *kind, int index, const char *path, Rb__Profile **ret_profile,
                      struct rb_why *why);

#endif
