/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of elementwise operators.
 *
 * point, fused > [point: conditions, point_binary, point_unary] */
#ifndef RB_KERNELS_CPU_POINT_H
#define RB_KERNELS_CPU_POINT_H

#include "proto/dtype.h"
#include "proto/operators.h"

#include <stdbool.h>
#include <stdint.h>

/* n elements; step[k] is 1, or 0 where operand k is one number for the whole row. */
typedef void rb_point_row(const void *const *in, const int64_t *step, void *out, int64_t n);

/* Loops of one input, and of two, all of `dtype`; gradients are of float32.  NULL: there is none.
 */
rb_point_row *rb_point_unary_row(enum rb_op op, enum rb_dtype dtype, bool tanh_form);
rb_point_row *rb_point_binary_row(enum rb_op op, enum rb_dtype dtype, bool fmod);
rb_point_row *rb_point_grad_row(enum rb_op op, bool tanh_form);

/* For kernels that are made of several operators: of float32, conditions being bytes.  NULL: there
 * is none. */
rb_point_row *rb_point_float_row(enum rb_op op, bool tanh_form);

#endif
