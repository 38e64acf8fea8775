/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward and backward, one after the other, for tests: shapes, numbers, calls. */
#ifndef RB_TESTS_KERNELS_ATTEND_H
#define RB_TESTS_KERNELS_ATTEND_H

#include "kernels/device.h"

/* Scale of all scores, rate of dropout, and its id. */
#define ATTEND_SCALE 0.7f
#define ATTEND_RATIO 0.25f
enum { ATTEND_ID = 17 };

struct attend_shape {
    int64_t batch, queries, keys, depth, width;
    bool causal, drops;
    bool narrow; /* all but l is rounded to bfloat16, in inputs and in outputs */
};

/* What both kernels read and make; l, dq, dk, dv NULL: not wanted. */
struct attend_run {
    float *q, *k, *v, *dy, *y, *l, *dq, *dk, *dv;
};

extern const struct rb_key attend_key;

/* Inputs and outputs of numbers in [-1, 1). */
struct attend_run attend_new(const struct attend_shape *shape);
void attend_done(const struct attend_run *run);

/* Run by the device, or (NULL) by the reference. */
void attend_forward(struct rb_device *device, const struct attend_shape *shape,
                    const struct attend_run *run);
void attend_backward(struct rb_device *device, const struct attend_shape *shape,
                     const struct attend_run *run);

/* How many keys query i sees. */
int64_t attend_seen(const struct attend_shape *shape, int64_t i);

/* sum + a b over n numbers, each `step` apart, from the first on, with one rounding a step.
 * narrow: as pairs of bfloat16 (kernels/cpu/pairs.h). */
float attend_chain(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n,
                   float sum, bool narrow);

/* Round n numbers to the nearest bfloat16 each. */
void attend_round(float *x, int64_t n);

#endif
