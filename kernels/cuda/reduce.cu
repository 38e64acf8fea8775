// SPDX-License-Identifier: Apache-2.0
/* Sums, means and maxima over any axes: one row of lanes an output. */
#include "kernels/cuda/number.h"

namespace
{

template <class T> struct limits {
    static RB_GPU T least()
    {
        return -(T)INFINITY;
    }
};
template <> struct limits<int32_t> {
    static RB_GPU int32_t least()
    {
        return INT32_MIN;
    }
};
template <> struct limits<int64_t> {
    static RB_GPU int64_t least()
    {
        return INT64_MIN;
    }
};

template <class T> struct reduce_body {
    struct rb_places kept, reduced; /* by outputs; by the elements that go into one */
    int64_t deep;
    int op;
    const T *x;
    T *y;

    template <class L> RB_GPU void operator()(int64_t row, L &lanes) const
    {
        const T *from = x + kept.at(row);
        const struct rb_places &places = reduced;
        T result;

        if (op == RB_OP_REDUCE_MAX)
            result = lanes.fold(deep, limits<T>::least(), rb_larger_of(),
                                [&](int64_t i) { return from[places.at(i)]; });
        else
            result =
                lanes.fold(deep, (T)0, rb_sum_of(), [&](int64_t i) { return from[places.at(i)]; });
        if (op == RB_OP_REDUCE_MEAN)
            result = result / (T)deep;
        if (lanes.first())
            y[row] = result;
    }
};

struct reduce : rb_work {
    struct rb_places kept, reduced;
    int64_t n, deep;
    enum rb_dtype dtype;
    int op;

    template <class T> void go(struct rb_cuda *cuda, const void *const *in, void *const *out)
    {
        struct reduce_body<T> body = {
            kept, reduced, deep, op, (const T *)in[0], (T *)out[0]
        };

        rb_rows(cuda, n, deep, body);
    }

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        rb_with_number(dtype, [&](auto zero) { go<decltype(zero)>(cuda, in, out); });
    }
};

bool is_reduced(const struct rb_attribute *axes, int axis)
{
    for (int i = 0; axes && i < axes->n_ints; i++)
        if (axes->ints[i] == axis)
            return true;
    return !axes;
}

} // namespace

int rb_cuda_reduce(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    const struct rb_attribute *axes = rb_call_attribute(call, "axes");
    const struct rb_tensor_type *x = &call->in[0];
    struct rb_walk kept = {}, reduced = {};
    int64_t step[RB_MAX_RANK] = {0};
    struct reduce work = {};

    work.dtype = x->dtype;
    if (work.dtype != RB_F32 && work.dtype != RB_F64 && work.dtype != RB_I32 &&
        work.dtype != RB_I64)
        return rb_no_kernel(call, why);
    rb_walk_dense(x, step);
    kept.operands = reduced.operands = 1;
    work.deep = 1;
    for (int a = 0; a < x->rank; a++) {
        struct rb_walk *walk = is_reduced(axes, a) ? &reduced : &kept;

        work.deep *= is_reduced(axes, a) ? x->dim[a] : 1;
        walk->dim[walk->rank] = x->dim[a];
        walk->step[0][walk->rank++] = step[a];
    }
    rb_walk_merge(&kept);
    rb_walk_merge(&reduced);
    work.kept = rb_places_of(&kept, 0);
    work.reduced = rb_places_of(&reduced, 0);
    work.n = rb_tensor_elements(&call->out[0]);
    work.op = call->op;
    return rb_make(cuda, call, work, ret_kernel);
}
