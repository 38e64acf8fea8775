/* SPDX-License-Identifier: Apache-2.0 */
/* A training program timed on this core with made-up samples: what a kernel takes does not depend
 * on them.
 *
 * profile, plan > [timing] > worker/profile */
#ifndef RB_CTL_TIMING_H
#define RB_CTL_TIMING_H

#include "ctl/forward.h"
#include "worker/profile.h"

/* Open the first program of forward->compiled, run it a few times, and measure what the core can do
 * beside.  Numbers are in -1..1, tokens and labels 0. */
int rb_timing_take(struct rb_device *device, struct rb_forward *forward,
                   struct rb_profile_speed *ret_speed, struct rb_profile **ret_profile,
                   struct rb_why *why);

#endif
