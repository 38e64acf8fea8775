// SPDX-License-Identifier: Apache-2.0
/* Elementwise operators.  Operators that training is full of are compiled one by one; the others
 * look at a number that is the same for all threads. */
#include "kernels/cuda/scalar.h"

namespace
{

/* Places of the inputs, or none where all are as dense as the output. */
struct operands {
    bool dense;
    struct rb_places in[3];

    RB_GPU int64_t at(int k, int64_t i) const
    {
        return dense ? i : in[k].at(i);
    }
};

/* OP 0: `op` says which. */
template <class T, int OP> struct binary_body {
    struct operands operands;
    const T *a, *b;
    T *y;
    int op;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = two<T>(OP ? OP : op, a[operands.at(0, i)], b[operands.at(1, i)]);
    }
};

template <class T> struct compare_body {
    struct operands operands;
    const T *a, *b;
    uint8_t *y;
    int op;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = holds<T>(op, a[operands.at(0, i)], b[operands.at(1, i)]);
    }
};

template <class T> struct where_body {
    struct operands operands;
    const uint8_t *c;
    const T *a, *b;
    T *y;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = c[operands.at(0, i)] ? a[operands.at(1, i)] : b[operands.at(2, i)];
    }
};

/* ---- One number --------------------------------------------------------------------------------*/

template <class T, int OP> struct unary_body {
    const T *x;
    T *y;
    int op;
    bool tanh_form;

    RB_GPU void operator()(int64_t i) const
    {
        y[i] = OP == RB_OP_GELU ? gelu((float)x[i], tanh_form) : whole<T>(OP ? OP : op, x[i]);
    }
};

/* ---- Gradients ---------------------------------------------------------------------------------*/

template <int OP> struct grad_body {
    const float *dy, *x;
    float *dx;
    bool tanh_form;

    RB_GPU void operator()(int64_t i) const
    {
        dx[i] = back<OP>(dy[i], x[i], tanh_form);
    }
};

/* ---- Of bfloat16 ------------------------------------------------------------------------------*/

/* Any of these where some tensors are bfloat16 and the others float32: computed in the latter.
 * `b` NULL: of one number. */
struct mixed_body {
    struct operands operands;
    const void *a, *b;
    void *y;
    bool short_a, short_b, short_y;
    int op;
    bool tanh_form;

    RB_GPU void operator()(int64_t i) const
    {
        float x = rb_real_get(a, short_a, operands.at(0, i));
        float z = b ? rb_real_get(b, short_b, operands.at(1, i)) : 0;

        rb_real_put(y, short_y, i, of_floats(op, x, z, b != NULL, tanh_form));
    }
};

/* ---- Kernels ----------------------------------------------------------------------------------*/

struct point : rb_work {
    struct operands operands;
    int64_t n;
    int op;
    bool tanh_form;
    enum rb_dtype dtype; /* of the operands */

    template <class T, int OP>
    void binary_run(struct rb_cuda *cuda, const void *const *in, void *const *out) const
    {
        struct binary_body<T, OP> body = {
            operands, (const T *)in[0], (const T *)in[1], (T *)out[0], op
        };

        rb_each(cuda, n, body);
    }

    template <class T>
    void compare_run(struct rb_cuda *cuda, const void *const *in, void *const *out) const
    {
        struct compare_body<T> body = {
            operands, (const T *)in[0], (const T *)in[1], (uint8_t *)out[0], op
        };

        rb_each(cuda, n, body);
    }

    template <class T, int OP>
    void unary_run(struct rb_cuda *cuda, const void *const *in, void *const *out) const
    {
        struct unary_body<T, OP> body = {
            (const T *)in[0], (T *)out[0], op, tanh_form
        };

        rb_each(cuda, n, body);
    }

    template <int OP>
    void grad_run(struct rb_cuda *cuda, const void *const *in, void *const *out) const
    {
        struct grad_body<OP> body = {
            (const float *)in[0], (const float *)in[1], (float *)out[0], tanh_form
        };

        rb_each(cuda, n, body);
    }
};

struct binary : point {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (dtype == RB_F64)
            binary_run<double, 0>(cuda, in, out);
        else if (dtype == RB_I32)
            binary_run<int32_t, 0>(cuda, in, out);
        else if (dtype == RB_I64)
            binary_run<int64_t, 0>(cuda, in, out);
        else if (op == RB_OP_ADD)
            binary_run<float, RB_OP_ADD>(cuda, in, out);
        else if (op == RB_OP_SUB)
            binary_run<float, RB_OP_SUB>(cuda, in, out);
        else if (op == RB_OP_MUL)
            binary_run<float, RB_OP_MUL>(cuda, in, out);
        else if (op == RB_OP_DIV)
            binary_run<float, RB_OP_DIV>(cuda, in, out);
        else
            binary_run<float, 0>(cuda, in, out);
    }
};

struct compare : point {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (rb_is_number(dtype))
            rb_with_number(dtype, [&](auto zero) { compare_run<decltype(zero)>(cuda, in, out); });
        else if (dtype == RB_I8)
            compare_run<int8_t>(cuda, in, out);
        else
            compare_run<uint8_t>(cuda, in, out);
    }
};

struct unary : point {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (dtype == RB_F64)
            unary_run<double, 0>(cuda, in, out);
        else if (dtype == RB_I32)
            unary_run<int32_t, 0>(cuda, in, out);
        else if (dtype == RB_I64)
            unary_run<int64_t, 0>(cuda, in, out);
        else if (op == RB_OP_GELU)
            unary_run<float, RB_OP_GELU>(cuda, in, out);
        else if (op == RB_OP_RELU)
            unary_run<float, RB_OP_RELU>(cuda, in, out);
        else
            unary_run<float, 0>(cuda, in, out);
    }
};

struct grad : point {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        if (op == RB_OP_RELU_GRAD)
            grad_run<RB_OP_RELU_GRAD>(cuda, in, out);
        else if (op == RB_OP_GELU_GRAD)
            grad_run<RB_OP_GELU_GRAD>(cuda, in, out);
        else if (op == RB_OP_TANH_GRAD)
            grad_run<RB_OP_TANH_GRAD>(cuda, in, out);
        else if (op == RB_OP_SIGMOID_GRAD)
            grad_run<RB_OP_SIGMOID_GRAD>(cuda, in, out);
        else
            grad_run<RB_OP_ERF_GRAD>(cuda, in, out);
    }
};

template <class T> struct where : point {
    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        struct where_body<T> body = {
            operands, (const uint8_t *)in[0], (const T *)in[1], (const T *)in[2], (T *)out[0]
        };

        rb_each(cuda, n, body);
    }
};

struct mixed : point {
    bool shorts[3]; /* of the inputs, and of the output */

    void run(struct rb_cuda *cuda, const void *const *in, void *const *out, const struct rb_key *)
    {
        bool pair = rb_op_info((unsigned)op)->inputs == 2;
        struct mixed_body body = {operands,  in[0],     pair ? in[1] : NULL, out[0],   shorts[0],
                                  shorts[1], shorts[2], op,                  tanh_form};

        rb_each(cuda, n, body);
    }
};

bool is_mixed(const struct rb_call *call)
{
    bool any = call->out[0].dtype == RB_BF16;

    for (int i = 0; i < call->n_in; i++)
        any |= call->in[i].dtype == RB_BF16;
    return any;
}

bool all_alike(const struct rb_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (!rb_tensor_same_shape(&call->in[i], &call->out[0]))
            return false;
    return true;
}

template <class W>
int make_point(struct rb_cuda *cuda, const struct rb_call *call, W work,
               struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct rb_walk walk;

    work.n = rb_tensor_elements(&call->out[0]);
    work.op = call->op;
    work.tanh_form = rb_call_int(call, "tanh", 0) != 0;
    work.dtype = call->in[call->op == RB_OP_WHERE ? 1 : 0].dtype;
    work.operands.dense = all_alike(call);
    if (!work.operands.dense) {
        if (!rb_walk_broadcast(&walk, &call->out[0], call->n_in, call->in))
            return rb_call_refuse(call, RB_EINVAL, why, "the inputs do not broadcast");
        for (int k = 0; k < call->n_in; k++)
            work.operands.in[k] = rb_places_of(&walk, k);
    }
    return rb_make(cuda, call, work, ret_kernel);
}

int make_mixed(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
               struct rb_why *why)
{
    struct mixed work = {};

    for (int i = 0; i < call->n_in; i++) {
        if (call->in[i].dtype != RB_F32 && call->in[i].dtype != RB_BF16)
            return rb_no_kernel(call, why);
        work.shorts[i] = call->in[i].dtype == RB_BF16;
    }
    work.shorts[2] = call->out[0].dtype == RB_BF16;
    if (call->op == RB_OP_MOD || (!work.shorts[2] && call->out[0].dtype != RB_F32))
        return rb_no_kernel(call, why);
    return make_point(cuda, call, work, ret_kernel, why);
}

} // namespace

int rb_cuda_binary(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                   struct rb_why *why)
{
    enum rb_dtype dtype = call->in[0].dtype;
    struct binary work = {};

    if (call->op == RB_OP_EQUAL || call->op == RB_OP_LESS || call->op == RB_OP_GREATER) {
        if (!rb_is_number(dtype) && rb_dtype_size(dtype) != 1)
            return rb_no_kernel(call, why);
        return make_point(cuda, call, compare{}, ret_kernel, why);
    }
    if (is_mixed(call))
        return make_mixed(cuda, call, ret_kernel, why);
    if (!rb_is_number(dtype))
        return rb_no_kernel(call, why);
    int err = make_point(cuda, call, work, ret_kernel, why);

    if (!err && call->op == RB_OP_MOD && rb_call_int(call, "fmod", 0))
        ((struct rb_made<binary> *)*ret_kernel)->work.op = RB_OP_COUNT;
    return err;
}

int rb_cuda_unary(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    if (is_mixed(call))
        return make_mixed(cuda, call, ret_kernel, why);
    if (!rb_is_number(call->in[0].dtype))
        return rb_no_kernel(call, why);
    return make_point(cuda, call, unary{}, ret_kernel, why);
}

int rb_cuda_point_grad(struct rb_cuda *cuda, const struct rb_call *call,
                       struct rb_kernel **ret_kernel, struct rb_why *why)
{
    if (is_mixed(call))
        return make_mixed(cuda, call, ret_kernel, why);
    if (call->in[0].dtype != RB_F32)
        return rb_no_kernel(call, why);
    return make_point(cuda, call, grad{}, ret_kernel, why);
}

int rb_cuda_where(struct rb_cuda *cuda, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    switch (rb_dtype_size(call->in[1].dtype)) {
    case 1:
        return make_point(cuda, call, where<uint8_t>{}, ret_kernel, why);
    case 2:
        return make_point(cuda, call, where<uint16_t>{}, ret_kernel, why);
    case 4:
        return make_point(cuda, call, where<uint32_t>{}, ret_kernel, why);
    default:
        return make_point(cuda, call, where<uint64_t>{}, ret_kernel, why);
    }
}
