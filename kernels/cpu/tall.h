/* SPDX-License-Identifier: Apache-2.0 */
/* Products of many rows on processors with AVX-512: what layers make of large microbatches, the
 * gradients that they hand back, and the gradients of their weights.  Also products of few rows, of
 * all runs at once, where pairs of bfloat16 have to be put together in any case.
 *
 * matmul > [tall] > wide_panel, wide_tile
 *
 * c [m, n] = a [m, k] times b [k, n], each as it is or turned, + bias.  Some columns of b at a
 * time, over as much of k as stays in the second cache, are packed into panels; all rows of a are
 * multiplied with them, read where they lie if tiles can.  Each element is one chain of fused
 * multiply-adds in the order of k, and then the bias: its bits depend on its row of a and its
 * column of b alone.  Factors of bfloat16 come in pairs (pairs.h).
 *
 * The blocks are those of Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication" (2008), but for a, which is not packed. */
#ifndef RB_KERNELS_CPU_TALL_H
#define RB_KERNELS_CPU_TALL_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* The product is float32.  RB_EUNSUPPORTED: not a product of this kind, or another kernel is
 * quicker here, which shapes and the numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_tall(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors, bool bias,
                struct rb_kernel **ret_kernel);

#endif
