// SPDX-License-Identifier: Apache-2.0
/* GatherElements and Scatter.  An output of Scatter goes through the indices of its line in order,
 * so that the result does not depend on threads. */
#include "kernels/cuda/launch.h"

namespace
{

/* Sizes and steps of x and of the indices, and the axis that they stand for. */
struct shape {
    int rank, axis;
    bool wide;
    int64_t x_dim[RB_MAX_RANK], x_step[RB_MAX_RANK], dim[RB_MAX_RANK], step[RB_MAX_RANK];

    RB_GPU int64_t index(const void *indices, int64_t at) const
    {
        return rb_row_of(indices, wide, at, x_dim[axis]);
    }
};

template <class T> struct gather_body {
    struct shape s;
    const T *x;
    const void *indices;
    T *y, outside;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t from = 0, left = i, k = s.index(indices, i);

        for (int a = s.rank - 1; a >= 0; a--) {
            from += (a == s.axis ? (k < 0 ? 0 : k) : left % s.dim[a]) * s.x_step[a];
            left /= s.dim[a];
        }
        y[i] = k < 0 ? outside : x[from];
    }
};

template <class T> RB_GPU T combine(int reduction, T a, T b)
{
    switch (reduction) {
    case RB_SCATTER_ADD:
        return a + b;
    case RB_SCATTER_MUL:
        return a * b;
    case RB_SCATTER_MAX:
        return a != a || a > b ? a : b;
    case RB_SCATTER_MIN:
        return a != a || a < b ? a : b;
    default:
        return b;
    }
}

template <class T> struct scatter_body {
    struct shape s;
    int reduction;
    const T *x, *updates;
    const void *indices;
    T *y;

    RB_GPU void operator()(int64_t i) const
    {
        int64_t left = i, own = 0, line = 0;
        bool named = true;
        T value = x[i];

        for (int a = s.rank - 1; a >= 0; a--) {
            int64_t k = left % s.x_dim[a];

            left /= s.x_dim[a];
            if (a == s.axis)
                own = k;
            else
                line += k * s.step[a];
            named = named && (a == s.axis || k < s.dim[a]);
        }
        for (int64_t j = 0; named && j < s.dim[s.axis]; j++) {
            int64_t at = line + j * s.step[s.axis];

            if (s.index(indices, at) == own)
                value = combine<T>(reduction, value, updates[at]);
        }
        y[i] = value;
    }
};

struct elements : rb_work {
    struct shape s;
    int reduction;
    int64_t n;
    enum rb_dtype dtype;

    template <class T> void gather(struct rb_cuda *cuda, const void *const *in, void *const *out)
    {
        struct gather_body<T> body = {
            s, (const T *)in[0], in[1], (T *)out[0], (T)rb_outside(dtype)
        };

        rb_each(cuda, n, body);
    }

    template <class T> void scatter(struct rb_cuda *cuda, const void *const *in, void *const *out)
    {
        struct scatter_body<T> body = {
            s, reduction, (const T *)in[0], (const T *)in[2], in[1], (T *)out[0]
        };

        rb_each(cuda, n, body);
    }
};

struct gather_elements : elements {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        switch (rb_dtype_size(dtype)) {
        case 1:
            gather<uint8_t>(cuda, in, out);
            break;
        case 2:
            gather<uint16_t>(cuda, in, out);
            break;
        case 4:
            gather<uint32_t>(cuda, in, out);
            break;
        default:
            gather<uint64_t>(cuda, in, out);
        }
    }
};

struct scatter : elements {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (rb_is_number(dtype))
            rb_with_number(dtype,
                           [&](auto zero) { elements::scatter<decltype(zero)>(cuda, in, out); });
        else
            elements::scatter<uint8_t>(cuda, in, out);
    }
};

struct shape shape_of(const struct rb_call *call)
{
    const struct rb_tensor_type *x = &call->in[0], *indices = &call->in[1];
    struct shape s = {};

    s.rank = x->rank;
    s.axis = (int)rb_call_int(call, "axis", 0);
    s.wide = indices->dtype == RB_I64;
    memcpy(s.x_dim, x->dim, sizeof(s.x_dim));
    memcpy(s.dim, indices->dim, sizeof(s.dim));
    rb_walk_dense(x, s.x_step);
    rb_walk_dense(indices, s.step);
    return s;
}

} // namespace

int rb_cuda_gather_elements(struct rb_cuda *cuda, const struct rb_call *call,
                            struct rb_kernel **ret_kernel, struct rb_why *)
{
    struct gather_elements work = {};

    work.s = shape_of(call);
    work.n = rb_tensor_elements(&call->out[0]);
    work.dtype = call->in[0].dtype;
    return rb_make(cuda, call, work, ret_kernel);
}

int rb_cuda_scatter(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                    struct rb_why *why)
{
    struct scatter work = {};

    work.s = shape_of(call);
    work.reduction = (int)rb_call_int(call, "reduction", RB_SCATTER_SET);
    work.n = rb_tensor_elements(&call->out[0]);
    work.dtype = call->in[0].dtype;
    switch (work.dtype) {
    case RB_F32:
    case RB_F64:
    case RB_I32:
    case RB_I64:
    case RB_BOOL:
    case RB_U8:
        return rb_make(cuda, call, work, ret_kernel);
    default:
        return rb_no_kernel(call, why);
    }
}
