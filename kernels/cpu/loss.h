/* SPDX-License-Identifier: Apache-2.0 */
/* What losses have in common: their outputs.
 *
 * cross_entropy > [loss] */
#ifndef RB_KERNELS_CPU_LOSS_H
#define RB_KERNELS_CPU_LOSS_H

#include "kernels/cpu/cpu.h"

/* Bit i: output i is there. */
unsigned rb_cpu_loss_wanted(const struct rb_call *call);

/* The first n of: loss F64 [1], then valid and correct I64 [1], which may be absent. */
int rb_cpu_loss_check_sums(const struct rb_call *call, int n, struct rb_why *why);

#endif
