/* SPDX-License-Identifier: Apache-2.0 */
/* GELU and its gradient where there is AVX-512: from tables, in half of the time that the
 * exponential and the division of math.h take.
 *
 * point_unary, point_binary > [gelu]
 *
 * The normal distribution and the slope are accurate to 3e-8, and for negative numbers to 2e-5 of
 * their own size, too; below -5.9 both are 0. */
#ifndef RB_KERNELS_CPU_GELU_H
#define RB_KERNELS_CPU_GELU_H

#include "kernels/cpu/point.h"

/* GELU without tanh, and its gradient (dy, x); NULL: there is no AVX-512 here. */
rb_point_row *rb_gelu_row(void);
rb_point_row *rb_gelu_grad_row(void);

#endif
