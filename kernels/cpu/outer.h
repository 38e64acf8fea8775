/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of outer products: how the gradient of a weight comes out of a few samples.
 *
 * matmul, conv_outer > [outer]
 *
 * c [m, n] is the sum over k of column k of a, which is stored turned ([k, m]), times row k of b
 * [k, n].  Where k is small the arithmetic costs less than c's memory, so c can be added to
 * fixed-point sums piece by piece, from registers.  Each element is one chain of fused
 * multiply-adds in the order of k: its bits depend on nothing else, and are the same written or
 * added.  Factors of bfloat16 come in pairs (pairs.h). */
#ifndef RB_KERNELS_CPU_OUTER_H
#define RB_KERNELS_CPU_OUTER_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* The product is float32.  RB_EUNSUPPORTED: not a product of this kind, or another kernel is
 * quicker here, which shapes and the numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_outer(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                 struct rb_kernel **ret_kernel);

/* The same where rows of c are `step` apart, because c is some columns of a larger matrix. */
int rb_cpu_outer_part(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                      int64_t step, struct rb_kernel **ret_kernel);

#endif
