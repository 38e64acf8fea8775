/* SPDX-License-Identifier: Apache-2.0 */
/* What elementwise operators make of numbers.  The number of the operator is the same for all
 * threads, or known when this is compiled.
 *
 * point, fused > [scalar] */
#ifndef RB_KERNELS_CUDA_SCALAR_H
#define RB_KERNELS_CUDA_SCALAR_H

#include "kernels/cuda/number.h"

namespace
{

/* ---- Two numbers ------------------------------------------------------------------------------*/

/* Integers wrap, which C++ promises of unsigned ones only. */
template <class T> struct wide {
    typedef T type;
};
template <> struct wide<int32_t> {
    typedef uint32_t type;
};
template <> struct wide<int64_t> {
    typedef uint64_t type;
};

inline RB_GPU float divide(float a, float b)
{
    return a / b;
}
inline RB_GPU double divide(double a, double b)
{
    return a / b;
}
template <class T> inline RB_GPU T divide(T a, T b)
{
    typedef typename wide<T>::type U;

    return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b;
}

inline RB_GPU float power(float a, float b)
{
    return (float)pow((double)a, (double)b);
}
inline RB_GPU double power(double a, double b)
{
    return pow(a, b);
}
template <class T> inline RB_GPU T power(T a, T b)
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

inline RB_GPU float left_over(float a, float b)
{
    return fmodf(a, b);
}
inline RB_GPU double left_over(double a, double b)
{
    return fmod(a, b);
}
template <class T> inline RB_GPU T left_over(T a, T b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

template <class T> inline RB_GPU T modulo(T a, T b, bool like_a)
{
    T left = left_over(a, b);

    return !like_a && left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

template <class T> inline RB_GPU T two(int op, T a, T b)
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

template <class T> inline RB_GPU bool holds(int op, T a, T b)
{
    return op == RB_OP_EQUAL ? a == b : op == RB_OP_LESS ? a < b : a > b;
}

/* ---- One number -------------------------------------------------------------------------------*/

template <class T> inline RB_GPU T gelu(T x, bool approximate)
{
    const T root = (T)0.79788456080286535588; /* sqrt(2 / pi) */

    if (approximate)
        return (T)0.5 * x * (1 + rb_tanh(root * (x + (T)0.044715 * x * x * x)));
    return (T)0.5 * x * (1 + rb_erf(x * (T)0.70710678118654752440));
}

template <class T> inline RB_GPU T gelu_slope(T x, bool approximate)
{
    const T root = (T)0.79788456080286535588;

    if (approximate) {
        T t = rb_tanh(root * (x + (T)0.044715 * x * x * x));

        return (T)0.5 * (1 + t) + (T)0.5 * x * (1 - t * t) * root * (1 + (T)(3 * 0.044715) * x * x);
    }
    return (T)0.5 * (1 + rb_erf(x * (T)0.70710678118654752440)) + x * root / 2 * rb_exp(-x * x / 2);
}

template <class T> inline RB_GPU T sigmoid(T x)
{
    T e = rb_exp(-rb_fabs(x));

    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

template <class T> inline RB_GPU T one(int op, T x, bool tanh_form)
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
    case RB_OP_EXPM1:
        return rb_expm1(x);
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

template <class T> inline RB_GPU T whole(int op, T x)
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
template <> inline RB_GPU float whole(int op, float x)
{
    return one(op, x, false);
}
template <> inline RB_GPU double whole(int op, double x)
{
    return one(op, x, false);
}

/* ---- Gradients --------------------------------------------------------------------------------*/

template <int OP> inline RB_GPU float slope(float x, bool tanh_form)
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

/* The gradient from (dy, y) or (dy, x). */
template <int OP> inline RB_GPU float back(float dy, float x, bool tanh_form)
{
    if (OP == RB_OP_RELU_GRAD)
        return x > 0 ? dy : 0;
    return dy * slope<OP>(x, tanh_form);
}

/* Any operator of one or two floats, gradients included: `z` is not looked at where the operator
 * takes one. */
inline RB_GPU float of_floats(int op, float x, float z, bool pair, bool tanh_form)
{
    switch (op) {
    case RB_OP_RELU_GRAD:
        return back<RB_OP_RELU_GRAD>(x, z, tanh_form);
    case RB_OP_GELU_GRAD:
        return back<RB_OP_GELU_GRAD>(x, z, tanh_form);
    case RB_OP_TANH_GRAD:
        return back<RB_OP_TANH_GRAD>(x, z, tanh_form);
    case RB_OP_SIGMOID_GRAD:
        return back<RB_OP_SIGMOID_GRAD>(x, z, tanh_form);
    case RB_OP_ERF_GRAD:
        return back<RB_OP_ERF_GRAD>(x, z, tanh_form);
    default:
        return pair ? two<float>(op, x, z) : one<float>(op, x, tanh_form);
    }
}

} // namespace

#endif
