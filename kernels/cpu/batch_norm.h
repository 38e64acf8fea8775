/* SPDX-License-Identifier: Apache-2.0 */
/* A batch norm ready to run, and the kernels for activations in blocks of channels.
 *
 * batch_norm > [batch_norm_blocked] */
#ifndef RB_KERNELS_CPU_BATCH_NORM_H
#define RB_KERNELS_CPU_BATCH_NORM_H

#include "kernels/cpu/cpu.h"

struct rb_batch_norm {
    struct rb_kernel base;
    int64_t n, c, inner; /* samples, channels, elements of a channel in a sample */
    float epsilon;
    unsigned wanted; /* bit i: output i is there */
    bool rounds;     /* a gradient in blocks is written as bfloat16 */
};

rb_cpu_run rb_batch_norm_blocked, rb_batch_norm_eval_blocked, rb_batch_norm_grad_blocked;

#endif
