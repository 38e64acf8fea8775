/* SPDX-License-Identifier: Apache-2.0 */
/* The loops that RB_CLONES compiles for several instruction sets; built once for each by
 * tests/kernels/meson.build, under the name LOOPS. */
#include "kernels/cpu/math.h"

#include "tests/kernels/loops.h"

void LOOPS(const float *x, float *y, int n)
{
    float *sums = y + (int64_t)LOOPS_FUNCTIONS * n;

    for (int i = 0; i < n; i++) {
        y[i] = rb_expf(x[i]);
        y[n + i] = rb_logf(fabsf(x[i]));
        y[2 * n + i] = rb_tanhf(x[i]);
        y[3 * n + i] = rb_erff(x[i]);
        y[4 * n + i] = rb_sigmoidf(x[i]);
        y[5 * n + i] = rb_geluf(x[i]);
        y[6 * n + i] = rb_gelu_slopef(x[i]);
        y[7 * n + i] = rb_gelu_tanhf(x[i]);
        y[8 * n + i] = rb_gelu_tanh_slopef(x[i]);
        y[9 * n + i] = rb_exp_belowf(-fabsf(x[i]));
    }
    for (int i = 0; i < n; i++) {
        sums[LOOPS_SUMS * i] = rb_sum(x, i);
        sums[LOOPS_SUMS * i + 1] = rb_dot(x, x + i, n - i);
        sums[LOOPS_SUMS * i + 2] = rb_squares(x, i, 0.25f);
        sums[LOOPS_SUMS * i + 3] = rb_max(x, i);
        sums[LOOPS_SUMS * i + 4] = rb_most(x, i);
    }
}
