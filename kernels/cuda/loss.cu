// SPDX-License-Identifier: Apache-2.0
/* Losses: sums in double, in a fixed order.  Cross-entropy goes through the logits where they are:
 * its forward pass keeps a number a row, its gradient is made from that and the logits. */
#include "kernels/cuda/launch.h"

namespace
{

RB_GPU int64_t target_of(int dtype, const void *targets, int64_t i)
{
    return dtype == RB_I64   ? ((const int64_t *)targets)[i]
           : dtype == RB_I32 ? ((const int32_t *)targets)[i]
                             : ((const uint8_t *)targets)[i];
}

struct rows {
    struct rb_call_split at;
    int targets; /* their type */
    int64_t ignore;
    float smoothing;

    RB_GPU int64_t first(int64_t row) const
    {
        return row / at.inner * at.n * at.inner + row % at.inner;
    }

    RB_GPU bool is_class(int64_t target) const
    {
        return target >= 0 && target < at.n;
    }
};

struct row_body {
    struct rows r;
    const float *logits;
    const void *targets;
    double *lse; /* may be absent */
    double *loss;
    int64_t *valid, *correct;

    template <class L> RB_GPU void operator()(int64_t row, L &lanes) const
    {
        const float *x = logits + r.first(row);
        int64_t step = r.at.inner, n = r.at.n, target = target_of(r.targets, targets, row), place;
        double total = 0, log_sum, value;
        float most, sum;

        most = lanes.fold(n, -INFINITY, rb_larger_of(), [&](int64_t i) { return x[i * step]; });
        sum = lanes.fold(n, 0.0f, rb_sum_of(), [&](int64_t i) { return expf(x[i * step] - most); });
        place = lanes.fold(n, n, rb_smaller_of(),
                           [&](int64_t i) { return x[i * step] == most ? i : n; });
        if (r.smoothing != 0)
            total = lanes.fold(n, 0.0, rb_sum_of(), [&](int64_t i) { return (double)x[i * step]; });
        if (!lanes.first())
            return;
        log_sum = (double)most + log((double)sum);
        if (lse)
            lse[row] = log_sum;
        value = target == r.ignore ? 0 : (double)NAN; /* as on cores: it is no class */
        if (target != r.ignore && r.is_class(target))
            value = (1 - (double)r.smoothing) * (log_sum - (double)x[target * step]) +
                    (double)r.smoothing * (log_sum - total / (double)n);
        loss[row] = value;
        valid[row] = target != r.ignore;
        correct[row] = target != r.ignore && place == target;
    }
};

/* The rows of one output: in lanes, then joined. */
template <class T> struct total_body {
    int64_t n;
    const T *parts;
    T *sum;

    template <class L> RB_GPU void operator()(int64_t, L &lanes) const
    {
        const T *from = parts;
        T all = lanes.fold(n, (T)0, rb_sum_of(), [&](int64_t i) { return from[i]; });

        if (lanes.first())
            *sum = all;
    }
};

template <class T> void total(struct rb_cuda *cuda, const T *parts, int64_t n, void *sum)
{
    struct total_body<T> body = {
        n, parts, (T *)sum
    };

    if (sum)
        rb_rows_of<RB_BLOCK_THREADS>(cuda, 1, body);
}

struct cross_entropy : rb_work {
    struct rows r;
    int64_t rows;
    int n_out;
    struct rb_gpu *gpu;
    void *scratch; /* loss, valid and correct of each row */

    void *out_of(void *const *out, int i) const
    {
        return i < n_out ? out[i] : NULL;
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        double *loss = (double *)scratch;
        int64_t *valid = (int64_t *)scratch + rows, *correct = valid + rows;
        struct row_body body = {
            r, (const float *)in[0], in[1], (double *)out_of(out, 3), loss, valid, correct};

        rb_rows(cuda, rows, r.at.n, body);
        total(cuda, loss, rows, out_of(out, 0));
        total(cuda, valid, rows, out_of(out, 1));
        total(cuda, correct, rows, out_of(out, 2));
    }

    void done()
    {
        rb_gpu_free(gpu, scratch);
    }
};

struct grad_body {
    struct rows r;
    const float *logits;
    const void *targets;
    const double *lse;
    float *dx;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t row = i / r.at.inner / r.at.n * r.at.inner + i % r.at.inner;
        int64_t k = i / r.at.inner % r.at.n, target = target_of(r.targets, targets, row);
        float wanted = r.smoothing / (float)r.at.n + (k == target ? 1 - r.smoothing : 0);
        float nearest = (float)lse[row], rest = (float)(lse[row] - (double)nearest);

        if (target == r.ignore)
            dx[i] = 0;
        else
            dx[i] = r.is_class(target) ? expf((logits[i] - nearest) - rest) - wanted : NAN;
    }
};

struct cross_entropy_grad : rb_work {
    struct rows r;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct grad_body body = {r, (const float *)in[0], in[1], (const double *)in[2],
                                 (float *)out[0]};

        rb_each(cuda, r.at.outer * r.at.n * r.at.inner, body);
    }
};

struct rows rows_of(const struct rb_call *call)
{
    struct rows r = {};

    r.at = rb_call_split_at(&call->in[0], (int)rb_call_int(call, "axis", 0));
    r.targets = call->in[1].dtype;
    r.ignore = rb_call_int(call, "ignoreIndex", INT64_MIN);
    r.smoothing = rb_call_float(call, "labelSmoothing", 0);
    return r;
}

/* ---- Element by element -----------------------------------------------------------------------*/

RB_GPU double element_loss(int op, double x, double t)
{
    if (op == RB_OP_MSE)
        return (x - t) * (x - t);
    return (x > 0 ? x : 0) - x * t + log1p(exp(-fabs(x)));
}

/* Parts of the whole, each in lanes; which elements a part has depends on n alone. */
struct part_body {
    int64_t n, parts;
    int op;
    const float *x, *t;
    double *loss;
    int64_t *correct; /* one of the two */

    template <class L> RB_GPU void operator()(int64_t part, L &lanes) const
    {
        int64_t size = (n + parts - 1) / parts, first = part * size, kind = op;
        int64_t count = n - first < size ? n - first : size;
        const float *a = x + (count > 0 ? first : 0), *b = t + (count > 0 ? first : 0);

        if (loss) {
            double sum = lanes.fold(count, 0.0, rb_sum_of(), [&](int64_t i) {
                return element_loss((int)kind, (double)a[i], (double)b[i]);
            });

            if (lanes.first())
                loss[part] = sum;
        }
        if (correct) {
            int64_t sum = lanes.fold(count, (int64_t)0, rb_sum_of(), [&](int64_t i) {
                return (int64_t)((a[i] > 0) == (b[i] > 0.5f));
            });

            if (lanes.first())
                correct[part] = sum;
        }
    }
};

struct set_body {
    int64_t *to, value;

    RB_GPU void operator()(int64_t) const
    {
        *to = value;
    }
};

struct loss : rb_work {
    int64_t n;
    int op, n_out;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct part_body body = {
            n, RB_CUDA_PARTS, op, (const float *)in[0], (const float *)in[1], NULL, NULL};
        struct set_body set = {n_out > 1 ? (int64_t *)out[1] : NULL, n};

        if (out[0]) {
            body.loss = (double *)cuda->partial;
            rb_rows_of<RB_WARP>(cuda, RB_CUDA_PARTS, body);
            total(cuda, body.loss, RB_CUDA_PARTS, out[0]);
        }
        if (set.to)
            rb_each(cuda, 1, set);
        if (n_out > 2 && out[2]) {
            body.loss = NULL;
            body.correct = (int64_t *)cuda->partial;
            rb_rows_of<RB_WARP>(cuda, RB_CUDA_PARTS, body);
            total(cuda, body.correct, RB_CUDA_PARTS, out[2]);
        }
    }
};

struct element_grad_body {
    int op;
    const float *x, *t;
    float *dx;

    RB_GPU void operator()(int64_t i) const
    {
        float e = expf(-fabsf(x[i]));

        if (op == RB_OP_MSE_GRAD)
            dx[i] = 2 * (x[i] - t[i]);
        else
            dx[i] = (x[i] < 0 ? e / (1 + e) : 1 / (1 + e)) - t[i];
    }
};

struct loss_grad : rb_work {
    int64_t n;
    int op;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct element_grad_body body = {op, (const float *)in[0], (const float *)in[1],
                                         (float *)out[0]};

        rb_each(cuda, n, body);
    }
};

struct graph_body {
    int64_t samples;
    const float *x;
    double *loss;
    int64_t *valid;

    RB_GPU void operator()(int64_t) const
    {
        if (loss)
            *loss = (double)*x * (double)samples;
        if (valid)
            *valid = samples;
    }
};

struct graph_loss : rb_work {
    int64_t samples;
    int n_out;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct graph_body body = {samples, (const float *)in[0], (double *)out[0],
                                  n_out > 1 ? (int64_t *)out[1] : NULL};

        rb_each(cuda, 1, body);
    }
};

} // namespace

int rb_cuda_cross_entropy(struct rb_cuda *cuda, const struct rb_call *call,
                          struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct cross_entropy work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.r = rows_of(call);
    work.rows = work.r.at.outer * work.r.at.inner;
    work.n_out = call->n_out;
    work.gpu = cuda->gpu;
    work.scratch = rb_gpu_alloc(cuda->gpu, (size_t)work.rows * 3 * sizeof(double));
    if (!work.scratch)
        return rb_call_refuse(call, RB_ENOMEM, why, "the GPU has no memory left");
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_cross_entropy_grad(struct rb_cuda *cuda, const struct rb_call *call,
                               struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct cross_entropy_grad work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.r = rows_of(call);
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_loss(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    struct loss work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.n = rb_tensor_elements(&call->in[0]);
    work.op = call->op;
    work.n_out = call->n_out;
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_loss_grad(struct rb_cuda *cuda, const struct rb_call *call,
                      struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct loss_grad work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.n = rb_tensor_elements(&call->in[0]);
    work.op = call->op;
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_graph_loss(struct rb_cuda *cuda, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct graph_loss work = {};

    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    work.samples = rb_call_int(call, "samples", 1);
    work.n_out = call->n_out;
    return rb_make(cuda, call, work, ret_kernel);
}
