/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

/* One line along the axis: elements first, first + step, ... */
static void line(const struct rb_call *call, const rb_real *a, const rb_real *b, rb_real *y,
                 int64_t n, int64_t step)
{
    double most = -INFINITY, sum = 0, dot = 0, total = 0;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, (double)a[i * step]);
    for (int64_t i = 0; i < n; i++) {
        sum += exp((double)a[i * step] - most);
        total += (double)a[i * step];
        dot += b ? (double)a[i * step] * (double)b[i * step] : 0;
    }
    for (int64_t i = 0; i < n; i++) {
        double v = (double)a[i * step], w = b ? (double)b[i * step] : 0, r;

        if (call->op == RB_OP_SOFTMAX)
            r = exp(v - most) / sum;
        else if (call->op == RB_OP_LOG_SOFTMAX)
            r = v - most - log(sum);
        else if (call->op == RB_OP_SOFTMAX_GRAD)
            r = w * (v - dot);
        else
            r = v - exp(w) * total;
        y[i * step] = (rb_real)r;
    }
}

void rb_reference_softmax(const struct rb_call *call, const void *const *in, void *const *out,
                          const struct rb_key *key)
{
    struct rb_call_split at = rb_call_split_at(&call->in[0], (int)rb_call_int(call, "axis", 0));

    if (rb_reference_widened(call, rb_reference_softmax, in, out, key))
        return;
    for (int64_t o = 0; o < at.outer; o++)
        for (int64_t i = 0; i < at.inner; i++) {
            int64_t first = o * at.n * at.inner + i;

            line(call, (const rb_real *)in[0] + first,
                 call->n_in > 1 ? (const rb_real *)in[1] + first : NULL, (rb_real *)out[0] + first,
                 at.n, at.inner);
        }
}
