/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled job's training program timed on a device of this machine.
 *
 * profile, plan > [timing] > worker/timing */
#ifndef RB_CTL_TIMING_H
#define RB_CTL_TIMING_H

#include "worker/timing/timing.h"

/* Where a job is timed. */
struct rb_timing_place {
    char kind[32];
    char numeric_class[192];
    char name[128]; /* of a GPU; empty: a core */
    uint64_t bytes; /* of its own memory; 0: it uses the host's */
    int index;
};

/* The first device here that computes in this class; a core may have any class.  RB_ENOTFOUND:
 * there is none. */
int rb_timing_find(const char *numeric_class, struct rb_timing_place *ret_place,
                   struct rb_why *why);

/* The first of this kind.  RB_ENOTFOUND: there is none. */
int rb_timing_first(const char *kind, struct rb_timing_place *ret_place, struct rb_why *why);

/* What was measured. */
struct rb_timing_taken {
    struct rb_profile *profile; /* free with rb_profile_free */
    struct rb_profile_speed speed;
    struct rb_timing_ways ways;
    struct rb_timing_step step; /* known with sums */
};

/* `sums`: include adding the program's contributions, as in training. */
int rb_timing_take(const struct rb_timing_place *place, const Rb__Model *model, bool sums,
                   struct rb_timing_taken *ret_taken, struct rb_why *why);

#endif
