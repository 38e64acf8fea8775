/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

struct sums {
    double count, x, square, dy, product; /* square and product: with x - mean */
};

/* Over all elements of channel c. */
static struct sums sum_channel(const struct rb_tensor_type *type, const rb_real *x,
                               const rb_real *dy, int64_t c, double mean)
{
    struct rb_call_split at = rb_call_split_at(type, 1);
    struct sums s = {0};

    for (int64_t i = 0; i < at.outer; i++)
        for (int64_t k = 0; k < at.inner; k++) {
            int64_t j = (i * at.n + c) * at.inner + k;
            double v = (double)x[j], g = dy ? (double)dy[j] : 0;

            s.count++;
            s.x += v;
            s.square += (v - mean) * (v - mean);
            s.dy += g;
            s.product += g * (v - mean);
        }
    return s;
}

static void set(const struct rb_call *call, void *const *out, int k, int64_t c, double value)
{
    if (k < call->n_out && out[k])
        ((rb_real *)out[k])[c] = (rb_real)value;
}

void rb_reference_batch_norm(const struct rb_call *call, const void *const *in, void *const *out,
                             const struct rb_key *key)
{
    const struct rb_tensor_type *type = &call->in[0];

    if (rb_reference_widened(call, rb_reference_batch_norm, in, out, key))
        return;
    if (type->rank >= 4 &&
        rb_tensor_elements(&call->in[call->op == RB_OP_BATCH_NORM ? 1 : 2]) != type->dim[1] &&
        rb_reference_blocked(call, type->rank - 3, rb_reference_batch_norm, in, out, key))
        return;

    bool grad = call->op == RB_OP_BATCH_NORM_GRAD, eval = call->op == RB_OP_BATCH_NORM_EVAL;
    const rb_real *x = grad ? in[1] : in[0], *dy = grad ? in[0] : NULL;
    double epsilon = (double)rb_call_float(call, "epsilon", 1e-5f);
    struct rb_call_split at = rb_call_split_at(type, 1);

    (void)key;
    for (int64_t c = 0; c < at.n; c++) {
        double mean =
            grad || eval ? (double)((const rb_real *)in[3])[c] : sum_channel(type, x, dy, c, 0).x;
        double scale = (double)((const rb_real *)in[grad ? 2 : 1])[c], variance, deviation;
        struct sums s = sum_channel(type, x, dy, c, 0);

        if (!grad && !eval)
            mean /= s.count;
        s = sum_channel(type, x, dy, c, mean);
        variance = eval ? (double)((const rb_real *)in[4])[c] : s.square / s.count;
        deviation = grad ? (double)((const rb_real *)in[4])[c] : 1 / sqrt(variance + epsilon);
        for (int64_t i = 0; i < at.outer * at.inner && out[0]; i++) {
            int64_t j = (i / at.inner * at.n + c) * at.inner + i % at.inner;
            double h = ((double)x[j] - mean) * deviation;

            if (grad)
                h = scale * deviation *
                    ((double)dy[j] - s.dy / s.count - h * s.product * deviation / s.count);
            else
                h = h * scale + (double)((const rb_real *)in[2])[c];
            ((rb_real *)out[0])[j] = (rb_real)h;
        }
        set(call, out, 1, c, grad ? s.product * deviation : mean);
        set(call, out, 2, c, grad ? s.dy : variance);
        set(call, out, 3, c, deviation);
    }
}
