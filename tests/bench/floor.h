/* SPDX-License-Identifier: Apache-2.0 */
/* How fast an instruction could be on this core. */
#ifndef RB_TESTS_BENCH_FLOOR_H
#define RB_TESTS_BENCH_FLOOR_H

#include "kernels/device.h"
#include "plan.pb-c.h"

/* In units a nanosecond. */
struct bench_speed {
    double flops; /* of a matrix product of 1,024 each way, through the device */
    double bytes; /* of a copy of 4 MB: read and written */
};
void bench_speed_measure(struct rb_device *device, struct bench_speed *ret_speed);

/* ns: the larger of its products and its bytes. */
double bench_floor_of(const Rb__Program *program, size_t instruction,
                      const struct bench_speed *speed);

/* "MatMul f32[512,256] f32[256,768] > f32[512,768] transB=1" and a newline. */
void bench_floor_print(const Rb__Program *program, size_t instruction);

#endif
