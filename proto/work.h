/* SPDX-License-Identifier: Apache-2.0 */
/* What an instruction asks of a device: its arithmetic, and the bytes that it reads and writes.
 *
 * Program > [work] > worker/timing/profile (against what was measured), plan/simulate/cost (where
 * nothing was) */
#ifndef RB_PROTO_WORK_H
#define RB_PROTO_WORK_H

#include "base/buffer.h"
#include "plan.pb-c.h"

#include <stddef.h>

/* Multiplications and additions of a product or a convolution; 0 for all other operators. */
double rb_work_flops(const Rb__Program *program, size_t instruction);

/* Bytes of its inputs and outputs. */
double rb_work_bytes(const Rb__Program *program, size_t instruction);

double rb_work_elements(const Rb__Tensor *tensor);
double rb_work_tensor_bytes(const Rb__Tensor *tensor);

/* "MatMul float32[512,256] float32[256,768] > float32[512,768] transB=1" */
void rb_work_text(const Rb__Program *program, size_t instruction, struct rb_buffer *out);

#endif
