/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products on processors with AVX2 and no AVX-512, where oneDNN's take up to twice as long.
 *
 * matmul > [product] > product_pack, product_tile
 *
 * Both factors are copied, block by block, into the order in which they are gone through, so it
 * does not matter how they lie.  Each element is one chain of fused multiply-adds in the order of
 * k, and then the bias: its bits depend on its row of a and its column of b alone.  So rows of
 * several runs can be gone through as one, and where k is not too deep the product can be added to
 * fixed-point sums from registers.
 *
 * In a product of several matrices, zeros at the start or the end of four neighbouring rows of a
 * are not multiplied: with masked attention that is half of the products with its probabilities.
 * The bits of numbers stay the same, but for a zero's sign below the smallest float; a NaN behind a
 * mask does not come out.
 *
 * The blocks are those of Goto and van de Geijn, "Anatomy of high-performance matrix
 * multiplication" (2008). */
#ifndef RB_KERNELS_CPU_PRODUCT_H
#define RB_KERNELS_CPU_PRODUCT_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* RB_EUNSUPPORTED: not a product of this kind, or another kernel is quicker here, which shapes and
 * the numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_product(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                   bool bias, struct rb_kernel **ret_kernel);

#endif
