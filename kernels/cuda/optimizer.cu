// SPDX-License-Identifier: Apache-2.0
/* Optimizer steps on reduced sums, with PyTorch's formulas, as on the CPU. */
#include "kernels/cuda/launch.h"

namespace
{

struct adamw_body {
    float *w, *m, *v;
    const int32_t *sum;
    double factor;
    float decay, b1, b2, eps, step, root;

    RB_GPU void operator()(int64_t i) const
    {
        float g = (float)((double)sum[i] * factor);
        float m1 = b1 * m[i] + (1.0f - b1) * g, v1 = b2 * v[i] + (1.0f - b2) * g * g;

        m[i] = m1;
        v[i] = v1;
        w[i] = w[i] * decay - step * m1 / (sqrtf(v1) * root + eps);
    }
};

struct sgd_body {
    float *w, *m; /* m NULL: no momentum */
    const int32_t *sum;
    double factor;
    float lr, decay, momentum;
    bool nesterov, first;

    RB_GPU void operator()(int64_t i) const
    {
        float g = (float)((double)sum[i] * factor) + decay * w[i];

        if (m) {
            float buffer = first ? g : momentum * m[i] + g;

            m[i] = buffer;
            g = nesterov ? g + momentum * buffer : buffer;
        }
        w[i] -= lr * g;
    }
};

struct predict_body {
    float *out;
    const float *w, *m, *v; /* m NULL: a copy; v NULL: along m itself */
    float keep, factor, root, eps;

    RB_GPU void operator()(int64_t i) const
    {
        if (!m)
            out[i] = w[i];
        else if (v)
            out[i] = w[i] * keep - factor * m[i] / (sqrtf(v[i]) * root + eps);
        else
            out[i] = w[i] - factor * m[i];
    }
};

struct statistic_body {
    float *w;
    const int32_t *sum;
    double factor;
    float keep;

    RB_GPU void operator()(int64_t i) const
    {
        w[i] = keep * w[i] + (float)((double)sum[i] * factor);
    }
};

} // namespace

void rb_cuda_apply_adamw(struct rb_device *device, float *w, float *m, float *v,
                         struct rb_sums sums, size_t n, int exponent, float scale,
                         const struct rb_adamw *how, double *ret_squares)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    struct adamw_body body = {};

    body.w = (float *)rb_twins_gpu(cuda, w);
    body.m = (float *)rb_twins_gpu(cuda, m);
    body.v = (float *)rb_twins_gpu(cuda, v);
    body.sum = (const int32_t *)rb_twins_gpu(cuda, sums.parts[0]);
    body.factor = ldexp((double)scale, -exponent);
    body.decay = 1.0f - how->lr * how->weight_decay;
    body.b1 = how->beta1;
    body.b2 = how->beta2;
    body.eps = how->eps;
    body.step = how->lr / how->correction1;
    body.root = 1.0f / sqrtf(how->correction2);
    if (ret_squares)
        rb_cuda_fixed_squares(device, sums.parts[0], n, exponent, 1, ret_squares);
    if (rb_gpu_enter(cuda->gpu))
        rb_each(cuda, (int64_t)n, body);
}

void rb_cuda_apply_sgd(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                       int exponent, float scale, const struct rb_sgd *how, double *ret_squares)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    struct sgd_body body = {};

    body.w = (float *)rb_twins_gpu(cuda, w);
    body.m = m && how->momentum != 0.0f ? (float *)rb_twins_gpu(cuda, m) : NULL;
    body.sum = (const int32_t *)rb_twins_gpu(cuda, sums.parts[0]);
    body.factor = ldexp((double)scale, -exponent);
    body.lr = how->lr;
    body.decay = how->weight_decay;
    body.momentum = how->momentum;
    body.nesterov = how->nesterov;
    body.first = how->first;
    if (ret_squares)
        rb_cuda_fixed_squares(device, sums.parts[0], n, exponent, 1, ret_squares);
    if (rb_gpu_enter(cuda->gpu))
        rb_each(cuda, (int64_t)n, body);
}

void rb_cuda_predict(struct rb_device *device, float *out, const float *w, const float *m,
                     const float *v, size_t n, const struct rb_predict *how)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    struct predict_body body = {};

    body.out = (float *)rb_twins_gpu(cuda, out);
    body.w = (const float *)rb_twins_gpu(cuda, w);
    body.m = m ? (const float *)rb_twins_gpu(cuda, m) : NULL;
    body.v = m && v ? (const float *)rb_twins_gpu(cuda, v) : NULL;
    body.keep = how->keep;
    body.factor = how->factor;
    body.root = how->root;
    body.eps = how->eps;
    if (rb_gpu_enter(cuda->gpu))
        rb_each(cuda, (int64_t)n, body);
}

void rb_cuda_apply_statistic(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                             int exponent, float keep)
{
    struct rb_cuda *cuda = (struct rb_cuda *)device;
    struct statistic_body body = {};

    body.w = (float *)rb_twins_gpu(cuda, w);
    body.sum = (const int32_t *)rb_twins_gpu(cuda, sums.parts[0]);
    body.factor = ldexp(1.0, -exponent);
    body.keep = keep;
    if (rb_gpu_enter(cuda->gpu))
        rb_each(cuda, (int64_t)n, body);
}
