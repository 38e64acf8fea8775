// SPDX-License-Identifier: Apache-2.0
/* Batch norms: a channel each for what is summed, then an element each.  Activations in blocks of
 * channels (proto/blocked.h) do not come to a GPU. */
#include "kernels/cuda/launch.h"

namespace
{

/* [outer, channels, inner] */
struct shape {
    int64_t outer, channels, inner;

    RB_GPU int64_t at(int64_t c, int64_t i) const
    {
        return (i / inner * channels + c) * inner + i % inner;
    }
    RB_GPU int64_t channel(int64_t j) const
    {
        return j / inner % channels;
    }
};

struct moments_body {
    struct shape s;
    float epsilon;
    const float *x;
    float *mean, *variance, *deviation; /* the last two may be absent */

    template <class L> RB_GPU void operator()(int64_t c, L &lanes) const
    {
        struct shape shape = s;
        const float *from = x;
        int64_t n = s.outer * s.inner;
        float m, v;

        m = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) { return from[shape.at(c, i)]; });
        m /= (float)n;
        v = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) {
            float d = from[shape.at(c, i)] - m;

            return d * d;
        });
        v /= (float)n;
        if (!lanes.first())
            return;
        mean[c] = m;
        deviation[c] = 1 / sqrtf(v + epsilon);
        if (variance)
            variance[c] = v;
    }
};

struct forward_body {
    struct shape s;
    const float *x, *scale, *bias, *mean, *deviation;
    float *y;

    RB_GPU void operator()(int64_t j) const
    {
        int64_t c = s.channel(j);

        y[j] = (x[j] - mean[c]) * deviation[c] * scale[c] + bias[c];
    }
};

struct eval_body {
    struct shape s;
    float epsilon;
    const float *x, *scale, *bias, *mean, *variance;
    float *y;

    RB_GPU void operator()(int64_t j) const
    {
        int64_t c = s.channel(j);

        y[j] = (x[j] - mean[c]) * (1 / sqrtf(variance[c] + epsilon)) * scale[c] + bias[c];
    }
};

struct sums_body {
    struct shape s;
    const float *dy, *x, *mean, *deviation;
    float *dscale, *dbias;

    template <class L> RB_GPU void operator()(int64_t c, L &lanes) const
    {
        struct shape shape = s;
        const float *g = dy, *from = x;
        int64_t n = s.outer * s.inner;
        float m = mean[c], sum, product;

        sum = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) { return g[shape.at(c, i)]; });
        product = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) {
            int64_t j = shape.at(c, i);

            return g[j] * (from[j] - m);
        });
        if (!lanes.first())
            return;
        dscale[c] = product * deviation[c];
        dbias[c] = sum;
    }
};

struct backward_body {
    struct shape s;
    const float *dy, *x, *scale, *mean, *deviation, *dscale, *dbias;
    float *dx;

    RB_GPU void operator()(int64_t j) const
    {
        int64_t c = s.channel(j);
        float n = (float)(s.outer * s.inner), h = (x[j] - mean[c]) * deviation[c];

        dx[j] = scale[c] * deviation[c] * (dy[j] - dbias[c] / n - h * dscale[c] / n);
    }
};

struct norm : rb_work {
    struct shape s;
    float epsilon;
    int n_out;
    struct rb_gpu *gpu;
    float *scratch; /* two numbers a channel, for results that nobody asked for */

    float *out_of(void *const *out, int i) const
    {
        return i < n_out ? (float *)out[i] : NULL;
    }
    int64_t elements() const
    {
        return s.outer * s.channels * s.inner;
    }
    void done()
    {
        rb_gpu_free(gpu, scratch);
    }
};

struct forward : norm {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        const float *x = (const float *)in[0];
        float *mean = out_of(out, 1), *deviation = out_of(out, 3);
        struct moments_body moments = {s,
                                       epsilon,
                                       x,
                                       mean ? mean : scratch,
                                       out_of(out, 2),
                                       deviation ? deviation : scratch + s.channels};
        struct forward_body body = {s,
                                    x,
                                    (const float *)in[1],
                                    (const float *)in[2],
                                    moments.mean,
                                    moments.deviation,
                                    out_of(out, 0)};

        rb_rows(cuda, s.channels, s.outer * s.inner, moments);
        if (body.y)
            rb_each(cuda, elements(), body);
    }
};

struct eval : norm {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct eval_body body = {s,
                                 epsilon,
                                 (const float *)in[0],
                                 (const float *)in[1],
                                 (const float *)in[2],
                                 (const float *)in[3],
                                 (const float *)in[4],
                                 (float *)out[0]};

        rb_each(cuda, elements(), body);
    }
};

struct backward : norm {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        const float *dy = (const float *)in[0], *x = (const float *)in[1];
        const float *scale = (const float *)in[2], *mean = (const float *)in[3];
        const float *deviation = (const float *)in[4];
        float *dscale = out_of(out, 1), *dbias = out_of(out, 2);
        struct sums_body sums = {s,
                                 dy,
                                 x,
                                 mean,
                                 deviation,
                                 dscale ? dscale : scratch,
                                 dbias ? dbias : scratch + s.channels};
        struct backward_body body = {s,         dy,          x,          scale,         mean,
                                     deviation, sums.dscale, sums.dbias, out_of(out, 0)};

        rb_rows(cuda, s.channels, s.outer * s.inner, sums);
        if (body.dx)
            rb_each(cuda, elements(), body);
    }
};

template <class W>
int make_norm(struct rb_cuda *cuda, const struct rb_call *call, W work, int scale,
              struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *x = &call->in[0];
    struct rb_call_split at = rb_call_split_at(x, 1);

    if (x->dtype != RB_F32 || x->rank < 2 || rb_tensor_elements(&call->in[scale]) != x->dim[1])
        return rb_no_kernel(call, why);
    work.s.outer = at.outer;
    work.s.channels = at.n;
    work.s.inner = at.inner;
    work.epsilon = rb_call_float(call, "epsilon", 1e-5f);
    work.n_out = call->n_out;
    work.gpu = cuda->gpu;
    work.scratch = (float *)rb_gpu_alloc(cuda->gpu, (size_t)at.n * 2 * sizeof(float));
    if (!work.scratch)
        return rb_call_refuse(call, RB_ENOMEM, why, "the GPU has no memory left");
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_batch_norm(struct rb_cuda *cuda, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_norm(cuda, call, forward{}, 1, ret_kernel, why);
}

int rb_cuda_batch_norm_eval(struct rb_cuda *cuda, const struct rb_call *call,
                            struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_norm(cuda, call, eval{}, 1, ret_kernel, why);
}

int rb_cuda_batch_norm_grad(struct rb_cuda *cuda, const struct rb_call *call,
                            struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_norm(cuda, call, backward{}, 2, ret_kernel, why);
}
