/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

static void forward(const struct rb_call *call, const void *const *in, void *const *out,
                    int64_t rows, int64_t n)
{
    const rb_real *scale = in[1], *bias = call->n_in > 2 ? in[2] : NULL;
    double epsilon = (double)rb_call_float(call, "epsilon", 1e-5f);

    for (int64_t r = 0; r < rows; r++) {
        const rb_real *x = (const rb_real *)in[0] + r * n;
        rb_real *y = (rb_real *)out[0] + r * n;
        double mean = 0, variance = 0, deviation;

        for (int64_t i = 0; i < n; i++)
            mean += (double)x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            variance += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
        deviation = 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < n; i++)
            y[i] = (rb_real)(((double)x[i] - mean) * deviation * (double)scale[i] +
                             (bias ? (double)bias[i] : 0));
        if (call->n_out > 1 && out[1])
            ((rb_real *)out[1])[r] = (rb_real)mean;
        if (call->n_out > 2 && out[2])
            ((rb_real *)out[2])[r] = (rb_real)deviation;
    }
}

/* The chain rule through mean and deviation, written out. */
static void backward(const struct rb_call *call, const void *const *in, void *const *out,
                     int64_t rows, int64_t n)
{
    const rb_real *scale = in[2], *mean = in[3], *deviation = in[4];
    rb_real *dscale = call->n_out > 1 ? out[1] : NULL, *dbias = call->n_out > 2 ? out[2] : NULL;

    for (int64_t r = 0; r < rows && out[0]; r++) {
        const rb_real *dy = (const rb_real *)in[0] + r * n, *x = (const rb_real *)in[1] + r * n;
        double m = (double)mean[r], s = (double)deviation[r], sum_g = 0, sum_gh = 0;

        for (int64_t i = 0; i < n; i++) {
            double g = (double)dy[i] * (double)scale[i];

            sum_g += g;
            sum_gh += g * ((double)x[i] - m) * s;
        }
        for (int64_t i = 0; i < n; i++)
            ((rb_real *)out[0])[r * n + i] =
                (rb_real)(s * ((double)dy[i] * (double)scale[i] - sum_g / (double)n -
                               ((double)x[i] - m) * s * sum_gh / (double)n));
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0, weighted = 0;

        for (int64_t r = 0; r < rows; r++) {
            double dy = (double)((const rb_real *)in[0])[r * n + i];
            double x = (double)((const rb_real *)in[1])[r * n + i];

            sum += dy;
            weighted += dy * (x - (double)mean[r]) * (double)deviation[r];
        }
        if (dscale)
            dscale[i] = (rb_real)weighted;
        if (dbias)
            dbias[i] = (rb_real)sum;
    }
}

void rb_reference_layer_norm(const struct rb_call *call, const void *const *in, void *const *out,
                             const struct rb_key *key)
{
    bool grad = call->op == RB_OP_LAYER_NORM_GRAD;
    const struct rb_tensor_type *x = &call->in[grad ? 1 : 0];
    int64_t rows = 1, n = 1;

    if (rb_reference_widened(call, rb_reference_layer_norm, in, out, key))
        return;
    for (int i = 0; i < x->rank; i++)
        *(i < rb_call_int(call, "axis", 0) ? &rows : &n) *= x->dim[i];
    (grad ? backward : forward)(call, in, out, rows, n);
}
