// SPDX-License-Identifier: Apache-2.0
/* Positions and running sums along an axis: a thread has a line, or the rank of an element. */
#include "kernels/cuda/launch.h"

namespace
{

/* Does a come before b?  Of equal ones neither does. */
template <class T> RB_GPU bool before(T a, T b, bool smallest)
{
    return smallest ? a < b : a > b;
}

struct line {
    int64_t outer, n, inner;

    RB_GPU int64_t first(int64_t i) const
    {
        return i / inner * n * inner + i % inner;
    }
};

template <class T> struct arg_body {
    struct line line;
    bool smallest, last;
    const T *x;
    int64_t *y;

    RB_GPU void operator()(int64_t i) const
    {
        const T *from = x + line.first(i);
        int64_t best = 0;

        for (int64_t j = 1; j < line.n; j++) {
            T a = from[j * line.inner], b = from[best * line.inner];

            if (before(a, b, smallest) || (last && a == b))
                best = j;
        }
        y[i] = best;
    }
};

template <class T> struct cum_body {
    struct line line;
    bool exclusive, reverse;
    const T *x;
    T *y;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t first = line.first(i);
        T sum = 0;

        for (int64_t k = 0; k < line.n; k++) {
            int64_t at = first + (reverse ? line.n - 1 - k : k) * line.inner;

            if (!exclusive)
                sum += x[at];
            y[at] = sum;
            if (exclusive)
                sum += x[at];
        }
    }
};

template <class T> struct top_body {
    struct line line;
    bool smallest;
    int64_t k;
    const T *x;
    T *y;
    int64_t *positions;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t j = i / line.inner % line.n, first = i - j * line.inner, rank = 0, to;
        int64_t o = i / line.inner / line.n;
        T own = x[i];

        for (int64_t q = 0; q < line.n && rank < k; q++) {
            T other = x[first + q * line.inner];

            rank += before(other, own, smallest) || (other == own && q < j);
        }
        if (rank >= k)
            return;
        to = (o * k + rank) * line.inner + i % line.inner;
        if (y)
            y[to] = own;
        if (positions)
            positions[to] = j;
    }
};

struct order : rb_work {
    struct line line;
    enum rb_dtype dtype;
    enum rb_op op;
    bool smallest, last, exclusive, reverse;
    int64_t k;

    template <class T> void go(struct rb_cuda *cuda, const void *const *in, void *const *out)
    {
        const T *x = (const T *)in[0];

        if (op == RB_OP_ARG_MAX) {
            struct arg_body<T> body = {
                line, smallest, last, x, (int64_t *)out[0]
            };

            rb_each(cuda, line.outer * line.inner, body);
        } else if (op == RB_OP_CUM_SUM) {
            struct cum_body<T> body = {
                line, exclusive, reverse, x, (T *)out[0]
            };

            rb_each(cuda, line.outer * line.inner, body);
        }
    }

    template <class T>
    void top(struct rb_cuda *cuda, const void *const *in, void *const *out, int64_t *positions)
    {
        struct top_body<T> body = {
            line, smallest, k, (const T *)in[0], (T *)out[0], positions
        };

        rb_each(cuda, line.outer * line.n * line.inner, body);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        rb_with_number(dtype, [&](auto zero) { go<decltype(zero)>(cuda, in, out); });
    }
};

struct top_k : order {
    bool positions;

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        int64_t *to = positions ? (int64_t *)out[1] : NULL;

        rb_with_number(dtype, [&](auto zero) { top<decltype(zero)>(cuda, in, out, to); });
    }
};

template <class W> void read_order(const struct rb_call *call, W *work)
{
    struct rb_call_split at = rb_call_split_at(&call->in[0], (int)rb_call_int(call, "axis", 0));

    work->line.outer = at.outer;
    work->line.n = at.n;
    work->line.inner = at.inner;
    work->dtype = call->in[0].dtype;
    work->op = call->op;
    work->smallest = rb_call_int(call, "smallest", 0) != 0;
    work->last = rb_call_int(call, "last", 0) != 0;
    work->exclusive = rb_call_int(call, "exclusive", 0) != 0;
    work->reverse = rb_call_int(call, "reverse", 0) != 0;
}

int make_order(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
               struct rb_why *why)
{
    struct order work = {};

    if (!rb_is_number(call->in[0].dtype))
        return rb_no_kernel(call, why);
    read_order(call, &work);
    return rb_make(cuda, call, work, ret_kernel);
}

} // namespace

int rb_cuda_arg_max(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    return make_order(cuda, call, ret_kernel, why);
}

int rb_cuda_cum_sum(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    return make_order(cuda, call, ret_kernel, why);
}

int rb_cuda_top_k(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    const struct rb_tensor_type *values = rb_call_out(call, 0), *positions = rb_call_out(call, 1);
    int axis = (int)rb_call_int(call, "axis", 0);
    struct top_k work = {};

    if (!rb_is_number(call->in[0].dtype))
        return rb_no_kernel(call, why);
    read_order(call, &work);
    work.k = values->dtype != RB_NONE ? values->dim[axis] : positions->dim[axis];
    work.positions = positions->dtype != RB_NONE;
    return rb_make(cuda, call, work, ret_kernel);
}
