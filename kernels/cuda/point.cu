// SPDX-License-Identifier: Apache-2.0
/* Elementwise operators.  Those that training is full of are compiled for their operator; the
 * others look at a number that is the same for all threads. */
#include "kernels/cuda/number.h"

namespace
{

/* ---- Two numbers ------------------------------------------------------------------------------*/

/* Integers wrap, which C++ says of unsigned ones only. */
template <class T> struct wide {
    typedef T type;
};
template <> struct wide<int32_t> {
    typedef uint32_t type;
};
template <> struct wide<int64_t> {
    typedef uint64_t type;
};

RB_GPU float divide(float a, float b)
{
    return a / b;
}
RB_GPU double divide(double a, double b)
{
    return a / b;
}
template <class T> RB_GPU T divide(T a, T b)
{
    typedef typename wide<T>::type U;

    return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b;
}

RB_GPU float power(float a, float b)
{
    return (float)pow((double)a, (double)b);
}
RB_GPU double power(double a, double b)
{
    return pow(a, b);
}
template <class T> RB_GPU T power(T a, T b)
{
    typedef typename wide<T>::type U;
    U base = (U)a, result = 1;

    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1, base *= base)
        if (b & 1)
            result *= base;
    return (T)result;
}

RB_GPU float left_over(float a, float b)
{
    return fmodf(a, b);
}
RB_GPU double left_over(double a, double b)
{
    return fmod(a, b);
}
template <class T> RB_GPU T left_over(T a, T b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

template <class T> RB_GPU T modulo(T a, T b, bool like_a)
{
    T left = left_over(a, b);

    return !like_a && left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

template <class T> RB_GPU T two(int op, T a, T b)
{
    typedef typename wide<T>::type U;

    switch (op) {
    case RB_OP_ADD:
        return (T)((U)a + (U)b);
    case RB_OP_SUB:
        return (T)((U)a - (U)b);
    case RB_OP_MUL:
        return (T)((U)a * (U)b);
    case RB_OP_DIV:
        return divide(a, b);
    case RB_OP_POW:
        return power(a, b);
    case RB_OP_MAX:
        return a != a || a > b ? a : b;
    case RB_OP_MIN:
        return a != a || a < b ? a : b;
    case RB_OP_MOD:
        return modulo(a, b, false);
    default: /* Mod, fmod=1 */
        return modulo(a, b, true);
    }
}

template <class T> RB_GPU bool holds(int op, T a, T b)
{
    return op == RB_OP_EQUAL ? a == b : op == RB_OP_LESS ? a < b : a > b;
}

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

/* ---- One number -------------------------------------------------------------------------------*/

template <class T> RB_GPU T gelu(T x, bool approximate)
{
    const T root = (T)0.79788456080286535588; /* sqrt(2 / pi) */

    if (approximate)
        return (T)0.5 * x * (1 + rb_tanh(root * (x + (T)0.044715 * x * x * x)));
    return (T)0.5 * x * (1 + rb_erf(x * (T)0.70710678118654752440));
}

template <class T> RB_GPU T gelu_slope(T x, bool approximate)
{
    const T root = (T)0.79788456080286535588;

    if (approximate) {
        T t = rb_tanh(root * (x + (T)0.044715 * x * x * x));

        return (T)0.5 * (1 + t) + (T)0.5 * x * (1 - t * t) * root * (1 + (T)(3 * 0.044715) * x * x);
    }
    return (T)0.5 * (1 + rb_erf(x * (T)0.70710678118654752440)) + x * root / 2 * rb_exp(-x * x / 2);
}

template <class T> RB_GPU T sigmoid(T x)
{
    T e = rb_exp(-rb_fabs(x));

    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

template <class T> RB_GPU T one(int op, T x, bool tanh_form)
{
    switch (op) {
    case RB_OP_NEG:
        return -x;
    case RB_OP_ABS:
        return rb_fabs(x);
    case RB_OP_SIGN:
        return x > 0 ? (T)1 : x < 0 ? (T)-1 : x;
    case RB_OP_EXP:
        return rb_exp(x);
    case RB_OP_LOG:
        return rb_log(x);
    case RB_OP_SQRT:
        return rb_sqrt(x);
    case RB_OP_RECIPROCAL:
        return 1 / x;
    case RB_OP_FLOOR:
        return rb_floor(x);
    case RB_OP_CEIL:
        return rb_ceil(x);
    case RB_OP_ROUND:
        return rb_rint(x);
    case RB_OP_SIN:
        return rb_sin(x);
    case RB_OP_COS:
        return rb_cos(x);
    case RB_OP_TAN:
        return rb_tan(x);
    case RB_OP_ASIN:
        return rb_asin(x);
    case RB_OP_ACOS:
        return rb_acos(x);
    case RB_OP_ATAN:
        return rb_atan(x);
    case RB_OP_SINH:
        return rb_sinh(x);
    case RB_OP_COSH:
        return rb_cosh(x);
    case RB_OP_ASINH:
        return rb_asinh(x);
    case RB_OP_ACOSH:
        return rb_acosh(x);
    case RB_OP_ATANH:
        return rb_atanh(x);
    case RB_OP_SOFTPLUS:
        return (x > 0 ? x : 0) + rb_log1p(rb_exp(-rb_fabs(x)));
    case RB_OP_TANH:
        return rb_tanh(x);
    case RB_OP_SIGMOID:
        return sigmoid(x);
    case RB_OP_ERF:
        return rb_erf(x);
    case RB_OP_RELU:
        return x > 0 || x != x ? x : 0;
    default:
        return gelu(x, tanh_form);
    }
}

template <class T> RB_GPU T whole(int op, T x)
{
    typedef typename wide<T>::type U;

    switch (op) {
    case RB_OP_NEG:
        return (T)(0 - (U)x);
    case RB_OP_ABS:
        return x < 0 ? (T)(0 - (U)x) : x;
    case RB_OP_SIGN:
        return (x > 0) - (x < 0);
    default:
        return x > 0 ? x : 0;
    }
}
template <> RB_GPU float whole(int op, float x)
{
    return one(op, x, false);
}
template <> RB_GPU double whole(int op, double x)
{
    return one(op, x, false);
}

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

/* ---- Gradients --------------------------------------------------------------------------------*/

template <int OP> RB_GPU float slope(float x, bool tanh_form)
{
    switch (OP) {
    case RB_OP_RELU_GRAD:
        return x > 0 ? 1.0f : 0.0f;
    case RB_OP_GELU_GRAD:
        return gelu_slope(x, tanh_form);
    case RB_OP_TANH_GRAD:
        return 1 - x * x;
    case RB_OP_SIGMOID_GRAD:
        return x * (1 - x);
    default:
        return 1.12837916709551257390f * expf(-x * x);
    }
}

template <int OP> struct grad_body {
    const float *dy, *x;
    float *dx;
    bool tanh_form;

    RB_GPU void operator()(int64_t i) const
    {
        if (OP == RB_OP_RELU_GRAD)
            dx[i] = x[i] > 0 ? dy[i] : 0;
        else
            dx[i] = dy[i] * slope<OP>(x[i], tanh_form);
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

    RB_GPU float value(float x, float z) const
    {
        switch (op) {
        case RB_OP_RELU_GRAD: /* (dy, y) */
            return z > 0 ? x : 0;
        case RB_OP_GELU_GRAD:
            return x * slope<RB_OP_GELU_GRAD>(z, tanh_form);
        case RB_OP_TANH_GRAD:
            return x * slope<RB_OP_TANH_GRAD>(z, tanh_form);
        case RB_OP_SIGMOID_GRAD:
            return x * slope<RB_OP_SIGMOID_GRAD>(z, tanh_form);
        case RB_OP_ERF_GRAD:
            return x * slope<RB_OP_ERF_GRAD>(z, tanh_form);
        default:
            return b ? two<float>(op, x, z) : one<float>(op, x, tanh_form);
        }
    }

    RB_GPU void operator()(int64_t i) const
    {
        float x = rb_real_get(a, short_a, operands.at(0, i));
        float z = b ? rb_real_get(b, short_b, operands.at(1, i)) : 0;

        rb_real_put(y, short_y, i, value(x, z));
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
