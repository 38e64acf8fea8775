/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a few rows with a weight: what a layer makes of a microbatch of less than 12 samples
 * (for more: samples).
 *
 * matmul > [rows]
 *
 * y [m, n] = x [m, k] times w [n, k] turned, + bias.  Reading the weight is what costs: it is read
 * once, as it lies, and neither packed nor turned.  Each element is 16 chains of fused
 * multiply-adds, joined in a fixed order: its bits depend on its row of x and its row of w alone.
 */
#ifndef RB_KERNELS_CPU_ROWS_H
#define RB_KERNELS_CPU_ROWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* RB_EUNSUPPORTED: not a product of this kind, or another kernel is quicker here, which shapes and
 * the numeric class alone decide. */
int rb_cpu_rows(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                struct rb_kernel **ret_kernel);

#endif
