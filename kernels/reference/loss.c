/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

/* An output that may be absent. */
static void put(const struct rb_call *call, void *const *out, int k, int64_t i, double x)
{
    if (rb_call_has_out(call, k))
        rb_reference_set(&call->out[k], out[k], i, x);
}

static void cross_entropy(const struct rb_call *call, const void *const *in, void *const *out)
{
    bool grad = call->op == RB_OP_CROSS_ENTROPY_GRAD;
    struct rb_call_split at = rb_call_split_at(&call->in[0], (int)rb_call_int(call, "axis", 0));
    int64_t ignore = rb_call_int(call, "ignoreIndex", INT64_MIN);
    double smoothing = (double)rb_call_float(call, "labelSmoothing", 0), loss = 0, n = (double)at.n;
    int64_t valid = 0, correct = 0;

    for (int64_t r = 0; r < at.outer * at.inner; r++) {
        const rb_real *x = (const rb_real *)in[0] + r / at.inner * at.n * at.inner + r % at.inner;
        int64_t target = (int64_t)rb_reference_get(&call->in[1], in[1], r), first = 0;
        double sum = 0, total = 0, most = -INFINITY, lse;
        bool is_class = target >= 0 && target < at.n;

        for (int64_t i = 0; i < at.n; i++)
            if ((double)x[i * at.inner] > most) {
                most = (double)x[i * at.inner];
                first = i;
            }
        for (int64_t i = 0; i < at.n; i++) {
            sum += exp((double)x[i * at.inner] - most);
            total += (double)x[i * at.inner];
        }
        lse = grad ? rb_reference_get(&call->in[2], in[2], r) : most + log(sum);
        for (int64_t i = 0; grad && i < at.n; i++) {
            double p = is_class ? exp((double)x[i * at.inner] - lse) : (double)NAN;
            double wanted = smoothing / n + (i == target ? 1 - smoothing : 0);

            ((rb_real *)out[0])[x - (const rb_real *)in[0] + i * at.inner] =
                (rb_real)(target == ignore ? 0 : p - wanted);
        }
        if (!grad)
            put(call, out, 3, r, lse);
        if (target == ignore)
            continue;
        valid++;
        correct += first == target;
        if (!is_class)
            loss = (double)NAN;
        else
            loss += (1 - smoothing) * (lse - (double)x[target * at.inner]) +
                    smoothing * (lse - total / n);
    }
    if (grad)
        return;
    put(call, out, 0, 0, loss);
    put(call, out, 1, 0, (double)valid);
    put(call, out, 2, 0, (double)correct);
}

static void elements(const struct rb_call *call, const void *const *in, void *const *out)
{
    int64_t n = rb_tensor_elements(&call->in[0]);
    double loss = 0, correct = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = (double)((const rb_real *)in[0])[i], t = (double)((const rb_real *)in[1])[i];

        if (call->op == RB_OP_MSE_GRAD)
            put(call, out, 0, i, 2 * (x - t));
        if (call->op == RB_OP_BCE_LOGITS_GRAD)
            put(call, out, 0, i, 1 / (1 + exp(-x)) - t);
        if (call->op == RB_OP_MSE)
            loss += (x - t) * (x - t);
        if (call->op == RB_OP_BCE_LOGITS)
            loss -= t * log(1 / (1 + exp(-x))) + (1 - t) * log(1 / (1 + exp(x)));
        correct += (x > 0) == (t > 0.5);
    }
    if (call->op == RB_OP_MSE_GRAD || call->op == RB_OP_BCE_LOGITS_GRAD)
        return;
    put(call, out, 0, 0, loss);
    put(call, out, 1, 0, (double)n);
    put(call, out, 2, 0, correct);
}

void rb_reference_loss(const struct rb_call *call, const void *const *in, void *const *out,
                       const struct rb_key *key)
{
    (void)key;
    if (call->op == RB_OP_CROSS_ENTROPY || call->op == RB_OP_CROSS_ENTROPY_GRAD) {
        cross_entropy(call, in, out);
    } else if (call->op == RB_OP_GRAPH_LOSS) {
        double samples = (double)rb_call_int(call, "samples", 1);

        put(call, out, 0, 0, (double)*(const rb_real *)in[0] * samples);
        put(call, out, 1, 0, samples);
    } else {
        elements(call, in, out);
    }
}
