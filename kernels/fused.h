/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a fused call, checked: what Fused means, for every kind of device.
 *
 * call > [fused] > cpu/fused.c, cuda/fused.cu, the reference */
#ifndef RB_KERNELS_FUSED_H
#define RB_KERNELS_FUSED_H

#include "kernels/call.h"
#include "proto/fused.h"

struct rb_fused_step {
    enum rb_op op;
    enum rb_dtype dtype; /* F32, BF16 or BOOL */
    bool tanh_form;
    int n;                      /* sources */
    int from[RB_FUSED_SOURCES]; /* as in proto/fused.h */
};

struct rb_fused {
    int n_in, n;
    struct rb_fused_step step[RB_FUSED_STEPS];
};

/* Sources come before what reads them, types fit, and the last step makes the output.  RB_EINVAL.
 * Shapes are the caller's to check. */
int rb_fused_read(const struct rb_call *call, struct rb_fused *ret, struct rb_why *why);

#endif
