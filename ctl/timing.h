/* SPDX-License-Identifier: Apache-2.0 */
/* A compiled job's training program timed on this core.
 *
 * profile, plan > [timing] > worker/timing */
#ifndef RB_CTL_TIMING_H
#define RB_CTL_TIMING_H

#include "ctl/forward.h"
#include "worker/profile.h"

/* Open the first program of forward->compiled, run it a few times, and measure what the core can do
 * beside.  `sums`: with adding what it contributes, as when training (worker/timing.h). */
int rb_timing_take(struct rb_device *device, struct rb_forward *forward, bool sums,
                   struct rb_profile_speed *ret_speed, struct rb_profile **ret_profile,
                   struct rb_why *why);

#endif
