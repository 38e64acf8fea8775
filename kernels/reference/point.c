/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/reference/reference.h"

#include <math.h>

static const double root_2_pi = 0.79788456080286535588; /* sqrt(2 / pi) */

static double gelu(double x, bool approximate)
{
    if (approximate)
        return 0.5 * x * (1 + tanh(root_2_pi * (x + 0.044715 * x * x * x)));
    return 0.5 * x * (1 + erf(x / sqrt(2.0)));
}

static double gelu_slope(double x, bool approximate)
{
    if (approximate) {
        double t = tanh(root_2_pi * (x + 0.044715 * x * x * x));

        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_pi * (1 + 3 * 0.044715 * x * x);
    }
    return 0.5 * (1 + erf(x / sqrt(2.0))) + x * root_2_pi / 2 * exp(-x * x / 2);
}

static double mod(double a, double b, bool integer, bool like_a)
{
    double left = integer && b == 0 ? 0 : fmod(a, b);

    return !like_a && left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

static double cast(double x, enum rb_dtype to)
{
    return to == RB_BOOL ? x != 0 : rb_dtype_is_real(to) ? x : trunc(x);
}

double rb_reference_value(const struct rb_call *call, const double *v)
{
    bool integer = !rb_dtype_is_real(call->out[0].dtype);
    bool tanh_form = rb_call_int(call, "tanh", 0) != 0;
    double a = v[0], b = v[1];

    switch (call->op) {
    case RB_OP_ADD:
        return a + b;
    case RB_OP_SUB:
        return a - b;
    case RB_OP_MUL:
        return a * b;
    case RB_OP_DIV:
        return integer ? (b == 0 ? 0 : trunc(a / b)) : a / b;
    case RB_OP_POW:
        return integer ? trunc(pow(a, b)) : pow(a, b);
    case RB_OP_MAX:
        return a != a || a > b ? a : b;
    case RB_OP_MIN:
        return a != a || a < b ? a : b;
    case RB_OP_MOD:
        return mod(a, b, integer, rb_call_int(call, "fmod", 0));
    case RB_OP_EQUAL:
        return a == b;
    case RB_OP_LESS:
        return a < b;
    case RB_OP_GREATER:
        return a > b;
    case RB_OP_WHERE:
        return a != 0 ? b : v[2];
    case RB_OP_NEG:
        return -a;
    case RB_OP_ABS:
        return fabs(a);
    case RB_OP_SIGN:
        return a > 0 ? 1 : a < 0 ? -1 : a;
    case RB_OP_EXP:
        return exp(a);
    case RB_OP_EXPM1:
        return expm1(a);
    case RB_OP_LOG:
        return log(a);
    case RB_OP_SQRT:
        return sqrt(a);
    case RB_OP_RECIPROCAL:
        return 1 / a;
    case RB_OP_FLOOR:
        return floor(a);
    case RB_OP_CEIL:
        return ceil(a);
    case RB_OP_ROUND:
        return nearbyint(a);
    case RB_OP_SIN:
        return sin(a);
    case RB_OP_COS:
        return cos(a);
    case RB_OP_TAN:
        return tan(a);
    case RB_OP_ASIN:
        return asin(a);
    case RB_OP_ACOS:
        return acos(a);
    case RB_OP_ATAN:
        return atan(a);
    case RB_OP_SINH:
        return sinh(a);
    case RB_OP_COSH:
        return cosh(a);
    case RB_OP_ASINH:
        return asinh(a);
    case RB_OP_ACOSH:
        return acosh(a);
    case RB_OP_ATANH:
        return atanh(a);
    case RB_OP_SOFTPLUS:
        return fmax(a, 0) + log1p(exp(-fabs(a)));
    case RB_OP_TANH:
        return tanh(a);
    case RB_OP_SIGMOID:
        return 1 / (1 + exp(-a));
    case RB_OP_ERF:
        return erf(a);
    case RB_OP_RELU:
        return a > 0 || a != a ? a : 0;
    case RB_OP_GELU:
        return gelu(a, tanh_form);
    case RB_OP_CAST:
        return cast(a, call->out[0].dtype);
    case RB_OP_RELU_GRAD:
        return b > 0 ? a : 0;
    case RB_OP_GELU_GRAD:
        return a * gelu_slope(b, tanh_form);
    case RB_OP_TANH_GRAD:
        return a * (1 - b * b);
    case RB_OP_SIGMOID_GRAD:
        return a * b * (1 - b);
    case RB_OP_ERF_GRAD:
        return a * 2 / sqrt(M_PI) * exp(-b * b);
    default:
        return (double)NAN;
    }
}

void rb_reference_point(const struct rb_call *call, const void *const *in, void *const *out,
                        const struct rb_key *key)
{
    const struct rb_tensor_type *y = &call->out[0];
    int64_t index[RB_MAX_RANK];

    (void)key;
    for (int64_t i = 0; i < rb_tensor_elements(y); i++) {
        double v[3] = {0};

        rb_reference_index(y, i, index);
        for (int k = 0; k < call->n_in; k++)
            v[k] = rb_reference_get(&call->in[k], in[k],
                                    rb_reference_broadcast(&call->in[k], index, y->rank));
        rb_reference_set(y, out[0], i, rb_reference_value(call, v));
    }
}
