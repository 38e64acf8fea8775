// SPDX-License-Identifier: Apache-2.0
/* Softmax and its logarithm along an axis, and their gradients. */
#include "kernels/cuda/number.h"

namespace
{

struct softmax_body {
    struct rb_call_split at;
    int op;
    const float *a, *b;
    float *y;

    template <class L> RB_GPU void operator()(int64_t row, L &lanes) const
    {
        int64_t first = row / at.inner * at.n * at.inner + row % at.inner, step = at.inner;
        const float *x = a + first, *z = b ? b + first : NULL;
        float *to = y + first, most, sum;

        if (op == RB_OP_SOFTMAX_GRAD) {
            sum = lanes.fold(at.n, 0.0f, rb_sum_of(),
                             [&](int64_t i) { return x[i * step] * z[i * step]; });
            lanes.each(at.n, [&](int64_t i) { to[i * step] = z[i * step] * (x[i * step] - sum); });
            return;
        }
        if (op == RB_OP_LOG_SOFTMAX_GRAD) {
            sum = lanes.fold(at.n, 0.0f, rb_sum_of(), [&](int64_t i) { return x[i * step]; });
            lanes.each(at.n,
                       [&](int64_t i) { to[i * step] = x[i * step] - expf(z[i * step]) * sum; });
            return;
        }
        most = lanes.fold(at.n, -INFINITY, rb_larger_of(), [&](int64_t i) { return x[i * step]; });
        sum = lanes.fold(at.n, 0.0f, rb_sum_of(),
                         [&](int64_t i) { return expf(x[i * step] - most); });
        if (op == RB_OP_SOFTMAX) {
            lanes.each(at.n, [&](int64_t i) { to[i * step] = expf(x[i * step] - most) / sum; });
        } else {
            sum = logf(sum);
            lanes.each(at.n, [&](int64_t i) { to[i * step] = x[i * step] - most - sum; });
        }
    }
};

struct softmax : rb_work {
    struct rb_call_split at;
    int op;
    bool grad;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct softmax_body body = {at, op, (const float *)in[0],
                                    grad ? (const float *)in[1] : NULL, (float *)out[0]};

        rb_rows(cuda, at.outer * at.inner, at.n, body);
    }
};

} // namespace

int rb_cuda_softmax(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    struct softmax work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.at = rb_call_split_at(&call->in[0], (int)rb_call_int(call, "axis", 0));
    work.op = call->op;
    work.grad = call->op == RB_OP_SOFTMAX_GRAD || call->op == RB_OP_LOG_SOFTMAX_GRAD;
    return rb_make(cuda, call, work, ret_kernel);
}
