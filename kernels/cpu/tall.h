/* SPDX-License-Identifier: Apache-2.0 */
/* Products of many rows on processors with AVX-512: what layers make of large microbatches, what
 * they hand back, and the gradients of their weights; and of few rows, of all runs at once, where
 * pairs of bfloat16 have to be put together in any case.
 *
 * matmul > [tall] > wide_panel, wide_tile
 *
 * c [m, n] = a [m, k] times b [k, n], each as it is or turned, + bias.  Of b some columns at a
 * time, and so much of k that they stay in the second cache, are packed into panels; all rows of a
 * go through them, where they lie if tiles can.  Each element is one chain of fused multiply-adds
 * in the order of k, and then the bias: its bits depend on its row of a and its column of b alone.
 * Of bfloat16 they come in pairs (pairs.h).
 *
 * The blocks are those of Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication" (2008), but for a, which is not packed. */
#ifndef RB_KERNELS_CPU_TALL_H
#define RB_KERNELS_CPU_TALL_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* To float32.  RB_EUNSUPPORTED: no such product, or others are quicker here, which shapes and the
 * numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_tall(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                struct rb_kernel **ret_kernel);

#endif
