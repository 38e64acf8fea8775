/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of outer products: how the gradient of a weight comes out of a few samples.
 *
 * matmul, conv_outer > [outer]
 *
 * c [m, n] is the sum over k of column k of a turned [k, m] and row k of b [k, n].  Where k is
 * small the product costs less than its memory, so it can be added to fixed-point sums piece by
 * piece, from registers.  Each element is one chain of fused multiply-adds in the order of k: its
 * bits depend on nothing else, and are the same in both ways.  Of bfloat16 they
 * come in pairs (pairs.h). */
#ifndef RB_KERNELS_CPU_OUTER_H
#define RB_KERNELS_CPU_OUTER_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* To float32.  RB_EUNSUPPORTED: no such product, or others are quicker here, which shapes and the
 * numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_outer(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                 struct rb_kernel **ret_kernel);

/* The same where rows of c are `step` apart, for it is some columns of a larger one. */
int rb_cpu_outer_part(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                      int64_t step, struct rb_kernel **ret_kernel);

#endif
