/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of a matrix product: what MatMul means, for every kind of device.
 *
 * call > [matrices] > cpu/matmul.c, cuda/matmul.cu
 *
 * Vectors are matrices of one row (a) or one column (b), and that axis is not in the output.
 * Leading axes broadcast. */
#ifndef RB_KERNELS_MATRICES_H
#define RB_KERNELS_MATRICES_H

#include "kernels/call.h"

struct rb_matrices {
    int batch;                                                          /* leading axes */
    int64_t a[RB_MAX_RANK + 2], b[RB_MAX_RANK + 2], c[RB_MAX_RANK + 2]; /* their sizes */
    int64_t m, k, n;
    bool swap_a, swap_b;
};

/* RB_EINVAL: the shapes do not fit each other. */
int rb_matrices_read(const struct rb_call *call, struct rb_matrices *ret, struct rb_why *why);

/* The same product with as few leading axes as possible: neighbouring axes that are alike (both
 * whole, or broadcast in the same operand) become one, axes of size 1 are dropped, and a stack of
 * matrices times one matrix becomes one taller matrix times that matrix. */
void rb_matrices_merge(struct rb_matrices *s);

#endif
