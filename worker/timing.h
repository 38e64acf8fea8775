/* SPDX-License-Identifier: Apache-2.0 */
/* A training program timed on this core with made-up samples: what a kernel takes does not depend
 * on them.
 *
 * Model > [timing] > Profile, for the planner; profile, for rubatoctl profile */
#ifndef RB_WORKER_TIMING_H
#define RB_WORKER_TIMING_H

#include "worker/profile.h"
#include "worker/program.h"

struct rb_timing {
    int warm, runs, least; /* runs: at most; once `most_ns` are over, `least` are enough */
    uint64_t most_ns;
};

/* Runs `ready`, which is `program` of the model made ready.  Its inputs become numbers in -1..1,
 * tokens and labels 0.  sums: room for the state's: what instructions contribute is added there, as
 * when training, and counts as theirs; NULL: gradients are left where they are. */
struct rb_profile *rb_timing_run(const Rb__Model *model, const Rb__Program *program,
                                 struct rb_program *ready, int32_t *sums,
                                 const struct rb_timing *how);

/* The first program of a Model message in a file, with made-up weights, on a device of this kind:
 * `rubato-worker --profile`.  ret_profile: free with rb__profile__free_unpacked.
 * RB_EUNSUPPORTED: a device whose time is not that of the thread. */
int rb_timing_of_file(const char *kind, const char *path, Rb__Profile **ret_profile,
                      struct rb_why *why);

#endif
