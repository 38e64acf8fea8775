/* SPDX-License-Identifier: Apache-2.0 */
/* Products of some samples with a large weight: what a layer makes of small microbatches.
 *
 * matmul > [samples] > wide_panel, wide_tile
 *
 * y [m, n] = x [m, k] times w [n, k] turned, + bias, from 12 samples a run on (for fewer: rows).
 * Reading w is what costs: it is neither copied nor turned, but read as it lies, once for as many
 * samples, of all runs that share it, as stay in cache.  The samples are turned instead, so that
 * each is a lane: a word of w times a vector of samples.  Each element is one chain of fused
 * multiply-adds in the order of k, and then the bias: its bits depend on its row of x and its row
 * of w alone.  Factors of bfloat16 come in pairs (pairs.h). */
#ifndef RB_KERNELS_CPU_SAMPLES_H
#define RB_KERNELS_CPU_SAMPLES_H

#include "kernels/cpu/cpu.h"
#include "kernels/matrices.h"

/* The product is float32.  RB_EUNSUPPORTED: not a product of this kind, or another kernel is
 * quicker here, which shapes and the numeric class alone decide.  RB_ENOMEM. */
int rb_cpu_samples(struct rb_cpu *cpu, const struct rb_matrices *s, enum rb_dtype factors,
                   bool bias, struct rb_kernel **ret_kernel);

#endif
