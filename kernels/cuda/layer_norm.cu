// SPDX-License-Identifier: Apache-2.0
/* Layer norms: a row each, and for the gradients of scale and bias a column each. */
#include "kernels/cuda/number.h"

namespace
{

struct forward_body {
    int64_t n;
    float epsilon;
    const float *x, *scale, *bias;
    void *y;
    bool short_y;
    float *means, *deviations;

    template <class L> RB_GPU void operator()(int64_t row, L &lanes) const
    {
        const float *from = x + row * n, *s = scale, *b = bias;
        const bool is_short = short_y;
        const int64_t first = row * n;
        void *to = y;
        float mean, deviation;

        mean = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) { return from[i]; }) / (float)n;
        deviation = lanes.fold(n, 0.0f, rb_sum_of(),
                               [&](int64_t i) { return (from[i] - mean) * (from[i] - mean); });
        deviation = 1 / sqrtf(deviation / (float)n + epsilon);
        if (to)
            lanes.each(n, [&](int64_t i) {
                rb_real_put(to, is_short, first + i,
                            (from[i] - mean) * deviation * s[i] + (b ? b[i] : 0));
            });
        if (lanes.first() && means)
            means[row] = mean;
        if (lanes.first() && deviations)
            deviations[row] = deviation;
    }
};

struct row_body {
    int64_t n;
    const float *dy, *x, *scale, *means, *deviations;
    float *dx;

    template <class L> RB_GPU void operator()(int64_t row, L &lanes) const
    {
        const float *g = dy + row * n, *from = x + row * n, *s = scale;
        float mean = means[row], deviation = deviations[row], sum, product;
        float *to = dx + row * n;

        sum = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) { return g[i] * s[i]; }) / (float)n;
        product = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) {
            return g[i] * s[i] * ((from[i] - mean) * deviation);
        });
        product /= (float)n;
        lanes.each(n, [&](int64_t i) {
            to[i] = deviation * (g[i] * s[i] - sum - (from[i] - mean) * deviation * product);
        });
    }
};

struct column_body {
    int64_t rows, n;
    const float *dy, *x, *means, *deviations;
    float *dscale, *dbias;

    template <class L> RB_GPU void operator()(int64_t column, L &lanes) const
    {
        const float *g = dy + column, *from = x + column, *mean = means, *deviation = deviations;
        int64_t step = n;
        float sum;

        if (dscale) {
            sum = lanes.fold(rows, 0.0f, rb_sum_of(), [&](int64_t r) {
                return g[r * step] * ((from[r * step] - mean[r]) * deviation[r]);
            });
            if (lanes.first())
                dscale[column] = sum;
        }
        if (dbias) {
            sum = lanes.fold(rows, 0.0f, rb_sum_of(), [&](int64_t r) { return g[r * step]; });
            if (lanes.first())
                dbias[column] = sum;
        }
    }
};

struct norm : rb_work {
    int64_t rows, n;
    float epsilon;
    int n_in, n_out;
    bool short_y; /* the first output is bfloat16 */

    const float *in_of(const void *const *in, int i) const
    {
        return i < n_in ? (const float *)in[i] : NULL;
    }
    float *out_of(void *const *out, int i) const
    {
        return i < n_out ? (float *)out[i] : NULL;
    }
};

struct forward : norm {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct forward_body body = {n,
                                    epsilon,
                                    in_of(in, 0),
                                    in_of(in, 1),
                                    in_of(in, 2),
                                    out_of(out, 0),
                                    short_y,
                                    out_of(out, 1),
                                    out_of(out, 2)};

        rb_rows(cuda, rows, n, body);
    }
};

struct backward : norm {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        const float *dy = in_of(in, 0), *x = in_of(in, 1), *mean = in_of(in, 3);
        struct row_body row = {n, dy, x, in_of(in, 2), mean, in_of(in, 4), out_of(out, 0)};
        struct column_body column = {rows,          n, dy, x, mean, in_of(in, 4), out_of(out, 1),
                                     out_of(out, 2)};

        if (row.dx)
            rb_rows(cuda, rows, n, row);
        if (column.dscale || column.dbias)
            rb_rows(cuda, n, rows, column);
    }
};

template <class W>
int make_norm(struct rb_cuda *cuda, const struct rb_call *call, W work, int x,
              struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *type = &call->in[x];

    if (type->dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.rows = work.n = 1;
    for (int i = 0; i < type->rank; i++)
        *(i < rb_call_int(call, "axis", 0) ? &work.rows : &work.n) *= type->dim[i];
    work.epsilon = rb_call_float(call, "epsilon", 1e-5f);
    work.n_in = call->n_in;
    work.n_out = call->n_out;
    work.short_y = call->out[0].dtype == RB_BF16;
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_layer_norm(struct rb_cuda *cuda, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_norm(cuda, call, forward{}, 0, ret_kernel, why);
}

int rb_cuda_layer_norm_grad(struct rb_cuda *cuda, const struct rb_call *call,
                            struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_norm(cuda, call, backward{}, 1, ret_kernel, why);
}
