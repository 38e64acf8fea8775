// SPDX-License-Identifier: Apache-2.0
/* Pools: an output looks at its window, and in the gradients an input at the windows that it is in.
 */
#include "kernels/cuda/window.h"

namespace
{

struct planes {
    struct rb_window w;
    int64_t in, out, n; /* places of a plane; planes */
};

struct max_body {
    struct planes p;
    const float *x;
    float *y;
    int32_t *at;

    RB_GPU void operator()(int64_t i) const
    {
        const float *from = x + i / p.out * p.in;
        int64_t o[3], best = -1;
        struct rb_span k[3];

        rb_plane_index(p.w.out, i % p.out, o);
        for (int a = 0; a < 3; a++)
            k[a] = rb_seen_by(p.w, a, o[a], 0, p.w.in[a]);
        for (int64_t d = k[0].first; d < k[0].end; d++)
            for (int64_t h = k[1].first; h < k[1].end; h++)
                for (int64_t v = k[2].first; v < k[2].end; v++) {
                    int64_t place = place_of(o, d, h, v);

                    if (best < 0 || from[place] > from[best] ||
                        (from[place] != from[place] && from[best] == from[best]))
                        best = place;
                }
        if (y)
            y[i] = best < 0 ? -INFINITY : from[best];
        if (at)
            at[i] = (int32_t)best;
    }

    RB_GPU int64_t place_of(const int64_t *o, int64_t d, int64_t h, int64_t v) const
    {
        const struct rb_window &w = p.w;
        int64_t a = o[0] * w.stride[0] + d * w.dilation[0] - w.begin[0];
        int64_t b = o[1] * w.stride[1] + h * w.dilation[1] - w.begin[1];

        return (a * w.in[1] + b) * w.in[2] + o[2] * w.stride[2] + v * w.dilation[2] - w.begin[2];
    }
};

struct max_grad_body {
    struct planes p;
    const float *dy;
    const int32_t *at;
    float *dx;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t plane = i / p.in, place = i % p.in, index[3];
        struct rb_span o[3];
        float sum = 0;

        rb_plane_index(p.w.in, place, index);
        for (int a = 0; a < 3; a++)
            o[a] = rb_seeing(p.w, a, index[a]);
        for (int64_t d = o[0].first; d < o[0].end; d++)
            for (int64_t h = o[1].first; h < o[1].end; h++)
                for (int64_t v = o[2].first; v < o[2].end; v++) {
                    int64_t from = plane * p.out + (d * p.w.out[1] + h) * p.w.out[2] + v;

                    if (at[from] == place)
                        sum += dy[from];
                }
        dx[i] = sum;
    }
};

/* How many elements the mean of an output goes over. */
RB_GPU float count_of(const struct rb_window &w, bool pads, const int64_t *o)
{
    float count = 1;

    for (int a = 0; a < 3; a++) {
        struct rb_span k = pads ? rb_seen_by(w, a, o[a], -w.begin[a], w.in[a] + w.end[a])
                                : rb_seen_by(w, a, o[a], 0, w.in[a]);

        count *= (float)(k.end > k.first ? k.end - k.first : 0);
    }
    return count;
}

struct average_body {
    struct max_body window; /* for its places */
    bool pads;
    float *y;

    RB_GPU void operator()(int64_t i) const
    {
        const struct planes &p = window.p;
        const float *from = window.x + i / p.out * p.in;
        struct rb_span k[3];
        int64_t o[3];
        float sum = 0, count;

        rb_plane_index(p.w.out, i % p.out, o);
        for (int a = 0; a < 3; a++)
            k[a] = rb_seen_by(p.w, a, o[a], 0, p.w.in[a]);
        for (int64_t d = k[0].first; d < k[0].end; d++)
            for (int64_t h = k[1].first; h < k[1].end; h++)
                for (int64_t v = k[2].first; v < k[2].end; v++)
                    sum += from[window.place_of(o, d, h, v)];
        count = count_of(p.w, pads, o);
        y[i] = count > 0 ? sum / count : 0;
    }
};

struct average_grad_body {
    struct planes p;
    bool pads;
    const float *dy;
    float *dx;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t plane = i / p.in, index[3], at[3];
        struct rb_span o[3];
        float sum = 0;

        rb_plane_index(p.w.in, i % p.in, index);
        for (int a = 0; a < 3; a++)
            o[a] = rb_seeing(p.w, a, index[a]);
        for (at[0] = o[0].first; at[0] < o[0].end; at[0]++)
            for (at[1] = o[1].first; at[1] < o[1].end; at[1]++)
                for (at[2] = o[2].first; at[2] < o[2].end; at[2]++) {
                    bool sees = true;

                    for (int a = 0; a < 3; a++)
                        sees = sees && rb_element_of(p.w, a, at[a], index[a]) >= 0;
                    if (sees)
                        sum +=
                            dy[plane * p.out + (at[0] * p.w.out[1] + at[1]) * p.w.out[2] + at[2]] /
                            count_of(p.w, pads, at);
                }
        dx[i] = sum;
    }
};

struct pool : rb_work {
    struct planes p;
    bool pads, positions;
};

struct max_pool : pool {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct max_body body = {p, (const float *)in[0], (float *)out[0],
                                positions ? (int32_t *)out[1] : NULL};

        rb_each(cuda, p.n * p.out, body);
    }
};

struct max_pool_grad : pool {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct max_grad_body body = {p, (const float *)in[0], (const int32_t *)in[1],
                                     (float *)out[0]};

        rb_each(cuda, p.n * p.in, body);
    }
};

struct average_pool : pool {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct average_body body = {{p, (const float *)in[0], NULL, NULL}, pads, (float *)out[0]};

        rb_each(cuda, p.n * p.out, body);
    }
};

struct average_pool_grad : pool {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct average_grad_body body = {p, pads, (const float *)in[0], (float *)out[0]};

        rb_each(cuda, p.n * p.in, body);
    }
};

template <class W>
int make_pool(struct rb_cuda *cuda, const struct rb_call *call, W work, bool grad,
              struct rb_kernel **ret_kernel, struct rb_why *why)
{
    const struct rb_tensor_type *x = grad ? &call->out[0] : &call->in[0];
    const struct rb_tensor_type *y = grad ? &call->in[0] : &call->out[0];
    int err;

    if (x->dtype != RB_F32 || x->rank != rb_window_spatial(call, NULL) + 2)
        return rb_no_kernel(call, why);
    err = rb_window_read(call, x, NULL, y, &work.p.w, why);
    if (err)
        return err;
    work.p.n = work.p.w.n * work.p.w.c;
    work.p.in = work.p.w.in[0] * work.p.w.in[1] * work.p.w.in[2];
    work.p.out = work.p.w.out[0] * work.p.w.out[1] * work.p.w.out[2];
    work.pads = rb_call_int(call, "countPad", 0) != 0;
    work.positions = !grad && rb_call_has_out(call, 1);
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_max_pool(struct rb_cuda *cuda, const struct rb_call *call,
                     struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_pool(cuda, call, max_pool{}, false, ret_kernel, why);
}

int rb_cuda_max_pool_grad(struct rb_cuda *cuda, const struct rb_call *call,
                          struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_pool(cuda, call, max_pool_grad{}, true, ret_kernel, why);
}

int rb_cuda_average_pool(struct rb_cuda *cuda, const struct rb_call *call,
                         struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_pool(cuda, call, average_pool{}, false, ret_kernel, why);
}

int rb_cuda_average_pool_grad(struct rb_cuda *cuda, const struct rb_call *call,
                              struct rb_kernel **ret_kernel, struct rb_why *why)
{
    return make_pool(cuda, call, average_pool_grad{}, true, ret_kernel, why);
}
