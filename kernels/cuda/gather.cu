// SPDX-License-Identifier: Apache-2.0
/* Rows by index, and their gradient: sums in index order without atomics.
 *
 * The gradient of a row is the sum of all places that name it.  First each place looks for the next
 * one that names the same row, and whether it is the first; then the first of each row goes along
 * its chain.  The search is quadratic in the number of places, but looks at nothing but indices. */
#include "kernels/cuda/launch.h"

namespace
{

/* x is [outer, rows, inner], y [outer, places, inner]. */
struct shape {
    int64_t outer, rows, inner, places;
    bool wide;       /* the indices are I64 */
    int64_t padding; /* of gradients: the row that gets none; -1: each gets its own */
};

template <class T> struct gather_body {
    struct shape s;
    const T *x;
    const void *indices;
    T *y, outside;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t row = rb_row_of(indices, s.wide, i / s.inner % s.places, s.rows);
        int64_t o = i / s.inner / s.places;

        y[i] = row < 0 ? outside : x[(o * s.rows + row) * s.inner + i % s.inner];
    }
};

/* next[p]: the next place of the same row, or -1; first[p]: is p the first of its row? */
struct link_body {
    struct shape s;
    const void *indices;
    int32_t *next, *first;

    RB_GPU void operator()(int64_t p) const
    {
        int64_t row = rb_row_of(indices, s.wide, p, s.rows), q;

        row = row == s.padding ? -1 : row;
        first[p] = row >= 0;
        next[p] = -1;
        for (q = 0; q < p && first[p]; q++)
            if (rb_row_of(indices, s.wide, q, s.rows) == row)
                first[p] = 0;
        for (q = p + 1; q < s.places && row >= 0; q++)
            if (rb_row_of(indices, s.wide, q, s.rows) == row) {
                next[p] = (int32_t)q;
                break;
            }
    }
};

struct sum_body {
    struct shape s;
    const void *indices;
    const int32_t *next, *first;
    const float *dy;
    float *dx;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t p = i / s.inner % s.places, o = i / s.inner / s.places;
        float sum = 0;

        if (!first[p])
            return;
        for (int64_t q = p; q >= 0; q = next[q])
            sum += dy[(o * s.places + q) * s.inner + i % s.inner];
        dx[(o * s.rows + rb_row_of(indices, s.wide, p, s.rows)) * s.inner + i % s.inner] = sum;
    }
};

struct gather : rb_work {
    struct shape s;
    enum rb_dtype dtype;

    template <class T> void take(struct rb_cuda *cuda, const void *const *in, void *const *out)
    {
        struct gather_body<T> body = {
            s, (const T *)in[0], in[1], (T *)out[0], (T)rb_outside(dtype)
        };

        rb_each(cuda, s.outer * s.places * s.inner, body);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        switch (rb_dtype_size(dtype)) {
        case 1:
            take<uint8_t>(cuda, in, out);
            break;
        case 2:
            take<uint16_t>(cuda, in, out);
            break;
        case 4:
            take<uint32_t>(cuda, in, out);
            break;
        default:
            take<uint64_t>(cuda, in, out);
        }
    }
};

struct gather_grad : rb_work {
    struct shape s;
    struct rb_gpu *gpu;
    int32_t *links; /* next, then first */

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct link_body link = {s, in[1], links, links + s.places};
        struct sum_body sum = {
            s, in[1], links, links + s.places, (const float *)in[0], (float *)out[0]};

        rb_gpu_zero(cuda->gpu, out[0], (size_t)(s.outer * s.rows * s.inner) * sizeof(float));
        rb_each(cuda, s.places, link);
        rb_each(cuda, s.outer * s.places * s.inner, sum);
    }

    void done()
    {
        rb_gpu_free(gpu, links);
    }
};

struct shape shape_of(const struct rb_call *call, const struct rb_tensor_type *x)
{
    struct rb_call_split at = rb_call_split_at(x, (int)rb_call_int(call, "axis", 0));
    struct shape s = {};

    s.outer = at.outer;
    s.rows = at.n;
    s.inner = at.inner;
    s.places = rb_tensor_elements(&call->in[1]);
    s.wide = call->in[1].dtype == RB_I64;
    s.padding = rb_call_int(call, "padding", -1);
    return s;
}

} // namespace

int rb_cuda_gather(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *)
{
    struct gather work = {};

    work.s = shape_of(call, &call->in[0]);
    work.dtype = call->in[0].dtype;
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_gather_grad(struct rb_cuda *cuda, const struct rb_call *call,
                        struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct gather_grad work = {};

    work.s = shape_of(call, &call->out[0]);
    work.gpu = cuda->gpu;
    if (call->in[0].dtype != RB_F32 || work.s.places > INT32_MAX)
        return rb_no_kernel(call, why);
    work.links = (int32_t *)rb_gpu_alloc(cuda->gpu, (size_t)work.s.places * 2 * sizeof(int32_t));
    if (!work.links)
        return rb_call_refuse(call, RB_ENOMEM, why, "the GPU has no memory left");
    return rb_make(cuda, call, work, ret_kernel);
}
