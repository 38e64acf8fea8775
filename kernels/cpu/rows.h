/* SPDX-License-Identifier: Apache-2.0 */
/* Products of a few rows with a weight: what a layer makes of a microbatch of less than 12 samples
 * (samples has more).
 *
 * matmul > [rows]
 *
 * y [m, n] = x [m, k] times w [n, k] turned, + bias.  The weight's memory is what costs: it is gone
 * through once, as it lies, and neither packed nor turned.  Each element is 16 chains of fused
 * multiply-adds, joined in a fixed order: its bits depend on its row of x and its row of w alone.
 */
#ifndef RB_KERNELS_CPU_ROWS_H
#define RB_KERNELS_CPU_ROWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* RB_EUNSUPPORTED: no such product, or others are quicker here, which shapes and the numeric class
 * alone decide. */
int rb_cpu_rows(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                struct rb_kernel **ret_kernel);

#endif
