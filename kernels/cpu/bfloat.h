/* SPDX-License-Identifier: Apache-2.0 */
/* bfloat16 on the CPU: how numbers are kept, never what is computed in.
 *
 * precision: bf16 (graph/narrow.c) > cast, point, matmul, conv > [bfloat] */
#ifndef RB_KERNELS_CPU_BFLOAT_H
#define RB_KERNELS_CPU_BFLOAT_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vector.h"

#include <string.h>

/* n elements, as rb_dtype_to_bfloat and rb_dtype_bfloat say. */
void rb_cpu_narrow(uint16_t *to, const float *from, int64_t n);
void rb_cpu_widen(float *to, const uint16_t *from, int64_t n);

/* One of them, for a loop. */
static RB_INLINE float rb_cpu_wide(uint16_t upper)
{
    uint32_t bits = (uint32_t)upper << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Is the dot product of pairs (pairs.h) the fastest product that there is here? */
bool rb_cpu_dots(const struct rb_cpu *cpu);

/* Can rows of `k` factors be multiplied as rows of words (pairs.h)?  Rows of float32 always can,
 * rows of bfloat16 where rb_cpu_dots and pairs fill them. */
bool rb_cpu_rows_of_words(const struct rb_cpu *cpu, enum rb_dtype factors, int64_t k);

/* Make a kernel for a call with bfloat16 tensors from one for the same call with float32 in their
 * place, which works on copies in the device's room. */
int rb_cpu_widened(struct rb_cpu *cpu, const struct rb_call *call, rb_cpu_prepare *prepare,
                   struct rb_kernel **ret_kernel, struct rb_why *why);

#endif
