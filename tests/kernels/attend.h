/* SPDX-License-Identifier: Apache-2.0 */
/* Attention forward and backward as they follow each other, for tests: shapes, numbers, calls. */
#ifndef RB_TESTS_KERNELS_ATTEND_H
#define RB_TESTS_KERNELS_ATTEND_H

#include "kernels/device.h"

/* Of all scores, what dropout takes, and by which id. */
#define ATTEND_SCALE 0.7f
#define ATTEND_RATIO 0.25f
enum { ATTEND_ID = 17 };

struct attend_shape {
    int64_t batch, queries, keys, depth, width;
    bool causal, drops;
    bool narrow; /* all but l is rounded to bfloat16, and given and taken so */
};

/* What both kernels read and make; l, dq, dk, dv NULL: not wanted. */
struct attend_run {
    float *q, *k, *v, *dy, *y, *l, *dq, *dk, *dv;
};

extern const struct rb_key attend_key;

/* Numbers in [-1, 1), of outputs too. */
struct attend_run attend_new(const struct attend_shape *shape);
void attend_done(const struct attend_run *run);

/* By the device, or (NULL) by the reference. */
void attend_forward(struct rb_device *device, const struct attend_shape *shape,
                    const struct attend_run *run);
void attend_backward(struct rb_device *device, const struct attend_shape *shape,
                     const struct attend_run *run);

/* How many keys query i sees. */
int64_t attend_seen(const struct attend_shape *shape, int64_t i);

/* sum + a b over n numbers, `step` apart, from the first on: a rounding each.  narrow: as pairs of
 * bfloat16 (kernels/cpu/pairs.h). */
float attend_chain(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n,
                   float sum, bool narrow);

/* Of n numbers each the bfloat16 next to it. */
void attend_round(float *x, int64_t n);

#endif
