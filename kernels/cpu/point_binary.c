/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of elementwise operators of two inputs, gradients among them. */
#include "kernels/cpu/point.h"

#include "kernels/cpu/gelu.h"
#include "kernels/cpu/math.h"

/* A row of two inputs: three loops, so that a broadcast operand stays in a register. */
#define BINARY(name, T, R, CLONES, EXPRESSION)                                                     \
    CLONES static void name(const void *const *in, const int64_t *step, void *out, int64_t n)      \
    {                                                                                              \
        const T *restrict p = in[0], *restrict q = in[1];                                          \
        R *restrict r = out;                                                                       \
        if (step[0] && step[1]) {                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const T a = p[i], b = q[i];                                                        \
                r[i] = (EXPRESSION);                                                               \
            }                                                                                      \
        } else if (step[0]) {                                                                      \
            const T b = *q;                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const T a = p[i];                                                                  \
                r[i] = (EXPRESSION);                                                               \
            }                                                                                      \
        } else {                                                                                   \
            const T a = *p;                                                                        \
            for (int64_t i = 0; i < n; i++) {                                                      \
                const T b = q[step[1] ? i : 0];                                                    \
                r[i] = (EXPRESSION);                                                               \
            }                                                                                      \
        }                                                                                          \
    }

/* Integers wrap around; division by zero, which hardware traps, gives 0. */
#define WRAP(T, U, op) (T)((U)a op(U) b)
#define DIVIDE(T, U)   b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b

static RB_INLINE float power(float a, float b)
{
    return b == 2.0f ? a * a : b == 3.0f ? a * a * a : powf(a, b);
}

static RB_INLINE int64_t integer_power(int64_t a, int64_t b)
{
    uint64_t result = 1, base = (uint64_t)a;

    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    for (; b > 0; b >>= 1) {
        if (b & 1)
            result *= base;
        base *= base;
    }
    return (int64_t)result;
}

/* With the sign of the divisor. */
static RB_INLINE double floor_mod(double a, double b)
{
    double left = fmod(a, b);

    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

static RB_INLINE int64_t integer_mod(int64_t a, int64_t b)
{
    int64_t left = b == 0 || b == -1 ? 0 : a % b;

    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

BINARY(add_f32, float, float, RB_CLONES, a + b)
BINARY(sub_f32, float, float, RB_CLONES, a - b)
BINARY(mul_f32, float, float, RB_CLONES, a *b)
BINARY(div_f32, float, float, RB_CLONES, a / b)
BINARY(pow_f32, float, float, , power(a, b))
BINARY(max_f32, float, float, RB_CLONES, ((a > b) | (a != a)) ? a : b)
BINARY(min_f32, float, float, RB_CLONES, ((a < b) | (a != a)) ? a : b)
BINARY(mod_f32, float, float, , (float)floor_mod((double)a, (double)b))
BINARY(fmod_f32, float, float, , fmodf(a, b))
BINARY(equal_f32, float, uint8_t, , a == b)
BINARY(less_f32, float, uint8_t, , a < b)
BINARY(greater_f32, float, uint8_t, , a > b)
BINARY(relu_grad_f32, float, float, RB_CLONES, b > 0 ? a : 0)
BINARY(gelu_grad_f32, float, float, RB_CLONES, a *rb_gelu_slopef(b))
BINARY(gelu_tanh_grad_f32, float, float, RB_CLONES, a *rb_gelu_tanh_slopef(b))
BINARY(tanh_grad_f32, float, float, RB_CLONES, a *(1 - b * b))
BINARY(sigmoid_grad_f32, float, float, RB_CLONES, a *b *(1 - b))
BINARY(erf_grad_f32, float, float, RB_CLONES, a * 1.12837917f * rb_exp_belowf(-b * b))

BINARY(add_f64, double, double, , a + b)
BINARY(sub_f64, double, double, , a - b)
BINARY(mul_f64, double, double, , a *b)
BINARY(div_f64, double, double, , a / b)
BINARY(pow_f64, double, double, , pow(a, b))
BINARY(max_f64, double, double, , ((a > b) | (a != a)) ? a : b)
BINARY(min_f64, double, double, , ((a < b) | (a != a)) ? a : b)
BINARY(mod_f64, double, double, , floor_mod(a, b))
BINARY(fmod_f64, double, double, , fmod(a, b))
BINARY(equal_f64, double, uint8_t, , a == b)
BINARY(less_f64, double, uint8_t, , a < b)
BINARY(greater_f64, double, uint8_t, , a > b)

#define INTEGERS(suffix, T, U)                                                                     \
    BINARY(add_##suffix, T, T, , WRAP(T, U, +))                                                    \
    BINARY(sub_##suffix, T, T, , WRAP(T, U, -))                                                    \
    BINARY(mul_##suffix, T, T, , WRAP(T, U, *))                                                    \
    BINARY(div_##suffix, T, T, , DIVIDE(T, U))                                                     \
    BINARY(pow_##suffix, T, T, , (T)integer_power(a, b))                                           \
    BINARY(max_##suffix, T, T, , a > b ? a : b)                                                    \
    BINARY(min_##suffix, T, T, , a < b ? a : b)                                                    \
    BINARY(mod_##suffix, T, T, , (T)integer_mod(a, b))                                             \
    BINARY(fmod_##suffix, T, T, , b == 0 || b == -1 ? 0 : a % b)                                   \
    BINARY(equal_##suffix, T, uint8_t, , a == b)                                                   \
    BINARY(less_##suffix, T, uint8_t, , a < b)                                                     \
    BINARY(greater_##suffix, T, uint8_t, , a > b)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
BINARY(equal_u8, uint8_t, uint8_t, , a == b)

rb_point_row *rb_point_binary_row(enum rb_op op, enum rb_dtype dtype, bool fmod)
{
    enum { FMOD = 11 };
    int column;

#define ROWS(suffix)                                                                               \
    {                                                                                              \
        add_##suffix, sub_##suffix, mul_##suffix, div_##suffix, pow_##suffix, equal_##suffix,      \
            less_##suffix, greater_##suffix, max_##suffix, min_##suffix, mod_##suffix,             \
            fmod_##suffix                                                                          \
    }
    static rb_point_row *const rows[4][FMOD + 1] = {ROWS(f32), ROWS(f64), ROWS(i32), ROWS(i64)};
#undef ROWS
    static const uint8_t columns[RB_OP_COUNT] = {
        [RB_OP_ADD] = 0, [RB_OP_SUB] = 1,   [RB_OP_MUL] = 2,  [RB_OP_DIV] = 3,
        [RB_OP_POW] = 4, [RB_OP_EQUAL] = 5, [RB_OP_LESS] = 6, [RB_OP_GREATER] = 7,
        [RB_OP_MAX] = 8, [RB_OP_MIN] = 9,   [RB_OP_MOD] = 10,
    };

    column = fmod ? FMOD : columns[op];
    switch (dtype) {
    case RB_F32:
        return rows[0][column];
    case RB_F64:
        return rows[1][column];
    case RB_I32:
        return rows[2][column];
    case RB_I64:
        return rows[3][column];
    case RB_U8:
    case RB_I8:
    case RB_BOOL:
        return op == RB_OP_EQUAL ? equal_u8 : NULL;
    default:
        return NULL;
    }
}

static rb_point_row *gelu_grad_row(bool tanh_form)
{
    rb_point_row *fast = rb_gelu_grad_row();

    return tanh_form ? gelu_tanh_grad_f32 : fast ? fast : gelu_grad_f32;
}

rb_point_row *rb_point_grad_row(enum rb_op op, bool tanh_form)
{
    static rb_point_row *const rows[RB_OP_COUNT] = {
        [RB_OP_RELU_GRAD] = relu_grad_f32,
        [RB_OP_TANH_GRAD] = tanh_grad_f32,
        [RB_OP_ERF_GRAD] = erf_grad_f32,
        [RB_OP_SIGMOID_GRAD] = sigmoid_grad_f32,
    };

    return op == RB_OP_GELU_GRAD ? gelu_grad_row(tanh_form) : rows[op];
}
