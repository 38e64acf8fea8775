/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of elementwise operators of one input. */
#include "kernels/cpu/point.h"

#include "kernels/cpu/gelu.h"
#include "kernels/cpu/math.h"

/* A row of one input; a broadcast one is computed once and copied. */
#define UNARY(name, T, CLONES, EXPRESSION)                                                         \
    CLONES static void name(const void *const *in, const int64_t *step, void *out, int64_t n)      \
    {                                                                                              \
        const T *restrict p = in[0];                                                               \
        T *restrict r = out;                                                                       \
        if (step[0]) {                                                                             \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const T x = p[i];                                                                  \
                r[i] = (EXPRESSION);                                                               \
            }                                                                                      \
        } else {                                                                                   \
            const T x = *p;                                                                        \
            const T y = (EXPRESSION);                                                              \
            for (int64_t i = 0; i < n; i++)                                                        \
                r[i] = y;                                                                          \
        }                                                                                          \
    }

#define SIGN(T) (x > 0 ? (T)1 : x < 0 ? (T)-1 : x)

UNARY(neg_f32, float, RB_CLONES, -x)
UNARY(abs_f32, float, RB_CLONES, fabsf(x))
UNARY(sign_f32, float, RB_CLONES, SIGN(float))
UNARY(exp_f32, float, RB_CLONES, rb_expf(x))
UNARY(expm1_f32, float, RB_CLONES, rb_expm1f(x))
UNARY(log_f32, float, RB_CLONES, rb_logf(x))
UNARY(sqrt_f32, float, RB_CLONES, sqrtf(x))
UNARY(reciprocal_f32, float, RB_CLONES, 1.0f / x)
UNARY(tanh_f32, float, RB_CLONES, rb_tanhf(x))
UNARY(sigmoid_f32, float, RB_CLONES, rb_sigmoidf(x))
UNARY(erf_f32, float, RB_CLONES, rb_erff(x))
UNARY(floor_f32, float, RB_CLONES, floorf(x))
UNARY(ceil_f32, float, RB_CLONES, ceilf(x))
UNARY(round_f32, float, RB_CLONES, rintf(x))
UNARY(softplus_f32, float, RB_CLONES, (x <= 0 ? 0 : x) + rb_log1pf(rb_exp_belowf(-fabsf(x))))
UNARY(relu_f32, float, RB_CLONES, x <= 0 ? 0 : x)
UNARY(gelu_f32, float, RB_CLONES, rb_geluf(x))
UNARY(gelu_tanh_f32, float, RB_CLONES, rb_gelu_tanhf(x))

UNARY(neg_f64, double, , -x)
UNARY(abs_f64, double, , fabs(x))
UNARY(sign_f64, double, , SIGN(double))
UNARY(exp_f64, double, , exp(x))
UNARY(expm1_f64, double, , expm1(x))
UNARY(log_f64, double, , log(x))
UNARY(sqrt_f64, double, , sqrt(x))
UNARY(reciprocal_f64, double, , 1.0 / x)
UNARY(tanh_f64, double, , tanh(x))
UNARY(sigmoid_f64, double, , 1.0 / (1.0 + exp(-x)))
UNARY(erf_f64, double, , erf(x))
UNARY(relu_f64, double, , x <= 0 ? 0 : x)

UNARY(floor_f64, double, , floor(x))
UNARY(ceil_f64, double, , ceil(x))
UNARY(round_f64, double, , rint(x))

/* Rare enough for the C library: in double, so that the float comes out rounded once. */
#define LIBRARY(name)                                                                              \
    UNARY(name##_f32, float, , (float)name((double)x))                                             \
    UNARY(name##_f64, double, , name(x))
LIBRARY(sin)
LIBRARY(cos)
LIBRARY(tan)
LIBRARY(asin)
LIBRARY(acos)
LIBRARY(atan)
LIBRARY(sinh)
LIBRARY(cosh)
LIBRARY(asinh)
LIBRARY(acosh)
LIBRARY(atanh)

UNARY(neg_i32, int32_t, , (int32_t)(0 - (uint32_t)x))
UNARY(abs_i32, int32_t, , x < 0 ? (int32_t)(0 - (uint32_t)x) : x)
UNARY(sign_i32, int32_t, , SIGN(int32_t))
UNARY(relu_i32, int32_t, , x < 0 ? 0 : x)
UNARY(neg_i64, int64_t, , (int64_t)(0 - (uint64_t)x))
UNARY(abs_i64, int64_t, , x < 0 ? (int64_t)(0 - (uint64_t)x) : x)
UNARY(sign_i64, int64_t, , SIGN(int64_t))
UNARY(relu_i64, int64_t, , x < 0 ? 0 : x)

struct unary_rows {
    rb_point_row *f32, *f64, *i32, *i64;
};
static const struct unary_rows unary_rows[RB_OP_COUNT] = {
    [RB_OP_NEG] = {neg_f32, neg_f64, neg_i32, neg_i64},
    [RB_OP_ABS] = {abs_f32, abs_f64, abs_i32, abs_i64},
    [RB_OP_SIGN] = {sign_f32, sign_f64, sign_i32, sign_i64},
    [RB_OP_EXP] = {exp_f32, exp_f64},
    [RB_OP_EXPM1] = {expm1_f32, expm1_f64},
    [RB_OP_LOG] = {log_f32, log_f64},
    [RB_OP_SQRT] = {sqrt_f32, sqrt_f64},
    [RB_OP_RECIPROCAL] = {reciprocal_f32, reciprocal_f64},
    [RB_OP_FLOOR] = {floor_f32, floor_f64},
    [RB_OP_CEIL] = {ceil_f32, ceil_f64},
    [RB_OP_ROUND] = {round_f32, round_f64},
    [RB_OP_SOFTPLUS] = {softplus_f32},
    [RB_OP_SIN] = {sin_f32, sin_f64},
    [RB_OP_COS] = {cos_f32, cos_f64},
    [RB_OP_TAN] = {tan_f32, tan_f64},
    [RB_OP_ASIN] = {asin_f32, asin_f64},
    [RB_OP_ACOS] = {acos_f32, acos_f64},
    [RB_OP_ATAN] = {atan_f32, atan_f64},
    [RB_OP_SINH] = {sinh_f32, sinh_f64},
    [RB_OP_COSH] = {cosh_f32, cosh_f64},
    [RB_OP_ASINH] = {asinh_f32, asinh_f64},
    [RB_OP_ACOSH] = {acosh_f32, acosh_f64},
    [RB_OP_ATANH] = {atanh_f32, atanh_f64},
    [RB_OP_TANH] = {tanh_f32, tanh_f64},
    [RB_OP_SIGMOID] = {sigmoid_f32, sigmoid_f64},
    [RB_OP_ERF] = {erf_f32, erf_f64},
    [RB_OP_RELU] = {relu_f32, relu_f64, relu_i32, relu_i64},
};

static rb_point_row *gelu_row(bool tanh_form)
{
    rb_point_row *fast = rb_gelu_row();

    return tanh_form ? gelu_tanh_f32 : fast ? fast : gelu_f32;
}

rb_point_row *rb_point_unary_row(enum rb_op op, enum rb_dtype dtype, bool tanh_form)
{
    const struct unary_rows *rows = &unary_rows[op];

    switch (dtype) {
    case RB_F32:
        return op == RB_OP_GELU ? gelu_row(tanh_form) : rows->f32;
    case RB_F64:
        return rows->f64;
    case RB_I32:
        return rows->i32;
    case RB_I64:
        return rows->i64;
    default:
        return NULL;
    }
}
