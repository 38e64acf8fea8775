/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8 to 383 rows with a large factor that is not turned, or with a shallow one: the
 * gradients that a layer hands back (tall has those of more rows, and of bfloat16).
 *
 * matmul > [mix] > wide_panel
 *
 * y [m, n] = x [m, k] times w [k, n], + bias: each row of y is a mixture of rows of w.  Reading w
 * is what costs: it is read once, as it lies, for all rows of all runs that share it.  Neither
 * factor is packed.  Where rows of w are 4 KB apart its columns compete for the same places in the
 * caches, but three lines of each row at a time are used up before that matters.  Each element is
 * one chain of fused multiply-adds in the order of k, and then the bias: its bits depend on its row
 * of x and its column of w alone. */
#ifndef RB_KERNELS_CPU_MIX_H
#define RB_KERNELS_CPU_MIX_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* The product is float32.  RB_EUNSUPPORTED: not a product of this kind, or another kernel is
 * quicker here, which shapes and the numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_mix(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
               struct rb_kernel **ret_kernel);

#endif
