/* SPDX-License-Identifier: Apache-2.0 */
/* The loops of elementwise operators, for kernels that are made of several.
 *
 * fused > [point] */
#ifndef RB_KERNELS_CPU_POINT_H
#define RB_KERNELS_CPU_POINT_H

#include "proto/operators.h"

#include <stdbool.h>
#include <stdint.h>

/* n elements; step[k] is 1, or 0 where operand k is one number for the whole row. */
typedef void rb_point_row(const void *const *in, const int64_t *step, void *out, int64_t n);

/* Of float32, conditions being bytes.  NULL: there is none. */
rb_point_row *rb_point_float_row(enum rb_op op, bool tanh_form);

#endif
