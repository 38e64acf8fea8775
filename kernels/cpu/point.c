/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators: a loop a row, chosen by operator and type when the kernel is prepared.
 * What is kept as bfloat16 goes through pieces of float32 that stay in the nearest cache. */
#include "kernels/cpu/point.h"

#include "kernels/cpu/bfloat.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/walk.h"

#include <stdlib.h>

enum { PIECE = 512 };

struct point {
    struct rb_kernel base;
    struct rb_walk walk;
    rb_point_row *row;
    int64_t size[RB_WALK_OPERANDS]; /* of an element */
    bool narrow[RB_WALK_OPERANDS];  /* kept as bfloat16, computed in float32 */
    bool any_narrow;
};

static void row_in_pieces(const struct point *point, const void *const *from, const int64_t *step,
                          void *to, int64_t n)
{
    int n_in = point->walk.operands - 1;
    float piece[RB_WALK_OPERANDS][PIECE];

    for (int64_t done = 0; done < n; done += PIECE) {
        int64_t count = n - done < PIECE ? n - done : PIECE;
        char *out = (char *)to + done * point->size[n_in];
        const void *in[RB_WALK_OPERANDS];

        for (int k = 0; k < n_in; k++) {
            in[k] = (const char *)from[k] + step[k] * done * point->size[k];
            if (!point->narrow[k])
                continue;
            rb_cpu_widen(piece[k], in[k], step[k] ? count : 1);
            in[k] = piece[k];
        }
        point->row(in, step, point->narrow[n_in] ? (void *)piece[n_in] : out, count);
        if (point->narrow[n_in])
            rb_cpu_narrow((uint16_t *)out, piece[n_in], count);
    }
}

static void point_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                      const struct rb_key *key)
{
    const struct point *point = (const struct point *)kernel;
    const struct rb_walk *walk = &point->walk;
    int n_in = walk->operands - 1;
    int64_t rows = rb_walk_rows(walk), step[RB_WALK_OPERANDS];
    struct rb_walk_at at;

    (void)key;
    for (int k = 0; k < n_in; k++)
        step[k] = walk->step[k][walk->rank - 1];
    rb_walk_start(walk, &at);
    for (int64_t i = 0; i < rows; i++) {
        const void *from[RB_WALK_OPERANDS];
        void *to;

        for (int k = 0; k < n_in; k++)
            from[k] = (const char *)in[k] + at.offset[k] * point->size[k];
        to = (char *)out[0] + at.offset[n_in] * point->size[n_in];
        if (point->any_narrow)
            row_in_pieces(point, from, step, to, walk->dim[walk->rank - 1]);
        else
            point->row(from, step, to, walk->dim[walk->rank - 1]);
        rb_walk_next(walk, &at);
    }
}

/* What a type is computed in. */
static enum rb_dtype computed(enum rb_dtype dtype)
{
    return dtype == RB_BF16 ? RB_F32 : dtype;
}

/* `row` computes in `in_dtype`. */
static int point_new(const struct rb_call *call, rb_point_row *row, enum rb_dtype in_dtype,
                     struct rb_kernel **ret_kernel, struct rb_why *why)
{
    struct rb_walk walk;
    struct point *point;

    if (!rb_walk_broadcast(&walk, &call->out[0], call->n_in, call->in))
        return rb_call_refuse(call, RB_EINVAL, why, "the shapes do not broadcast to the output's");
    point = rb_cpu_kernel(sizeof(*point), point_run);
    point->walk = walk;
    point->row = row;
    for (int k = 0; k <= call->n_in; k++) {
        enum rb_dtype dtype = k < call->n_in ? call->in[k].dtype : call->out[0].dtype;

        point->size[k] = (int64_t)rb_dtype_size(dtype);
        point->narrow[k] = dtype == RB_BF16 && in_dtype == RB_F32;
        point->any_narrow = point->any_narrow || point->narrow[k];
    }
    *ret_kernel = &point->base;
    return 0;
}

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
BINARY(erf_grad_f32, float, float, RB_CLONES, a * 1.12837917f * rb_expf(-b * b))

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

static rb_point_row *binary_row(enum rb_op op, enum rb_dtype dtype, bool fmod)
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

int rb_cpu_binary(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                  struct rb_why *why)
{
    bool compares = call->op == RB_OP_EQUAL || call->op == RB_OP_LESS || call->op == RB_OP_GREATER;
    enum rb_dtype dtype = computed(rb_call_in(call, 0)->dtype);
    rb_point_row *row = binary_row(call->op, dtype, rb_call_int(call, "fmod", 0) != 0);

    (void)cpu;
    if (call->n_in != 2 || call->n_out != 1 || computed(rb_call_in(call, 1)->dtype) != dtype)
        return rb_call_refuse(call, RB_EINVAL, why, "two inputs of one type are needed");
    if (!row)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    if (computed(call->out[0].dtype) != (compares ? RB_BOOL : dtype))
        return rb_call_refuse(call, RB_EINVAL, why, "the output's type is wrong");
    return point_new(call, row, dtype, ret_kernel, why);
}

static rb_point_row *grad_row(enum rb_op op, bool tanh_form)
{
    static rb_point_row *const rows[RB_OP_COUNT] = {
        [RB_OP_RELU_GRAD] = relu_grad_f32,       [RB_OP_GELU_GRAD] = gelu_grad_f32,
        [RB_OP_TANH_GRAD] = tanh_grad_f32,       [RB_OP_ERF_GRAD] = erf_grad_f32,
        [RB_OP_SIGMOID_GRAD] = sigmoid_grad_f32,
    };

    return op == RB_OP_GELU_GRAD && tanh_form ? gelu_tanh_grad_f32 : rows[op];
}

int rb_cpu_point_grad(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                      struct rb_why *why)
{
    (void)cpu;
    if (call->n_in != 2 || call->n_out != 1)
        return rb_call_refuse(call, RB_EINVAL, why, "two inputs are needed");
    if (computed(call->in[0].dtype) != RB_F32 || computed(call->in[1].dtype) != RB_F32 ||
        computed(call->out[0].dtype) != RB_F32)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    return point_new(call, grad_row(call->op, rb_call_int(call, "tanh", 0) != 0), RB_F32,
                     ret_kernel, why);
}

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
UNARY(log_f32, float, RB_CLONES, rb_logf(x))
UNARY(sqrt_f32, float, RB_CLONES, sqrtf(x))
UNARY(reciprocal_f32, float, RB_CLONES, 1.0f / x)
UNARY(tanh_f32, float, RB_CLONES, rb_tanhf(x))
UNARY(sigmoid_f32, float, RB_CLONES, rb_sigmoidf(x))
UNARY(erf_f32, float, RB_CLONES, rb_erff(x))
UNARY(floor_f32, float, RB_CLONES, floorf(x))
UNARY(ceil_f32, float, RB_CLONES, ceilf(x))
UNARY(round_f32, float, RB_CLONES, rintf(x))
UNARY(softplus_f32, float, RB_CLONES, (x <= 0 ? 0 : x) + rb_log1pf(rb_expf(-fabsf(x))))
UNARY(relu_f32, float, RB_CLONES, x <= 0 ? 0 : x)
UNARY(gelu_f32, float, RB_CLONES, rb_geluf(x))
UNARY(gelu_tanh_f32, float, RB_CLONES, rb_gelu_tanhf(x))

UNARY(neg_f64, double, , -x)
UNARY(abs_f64, double, , fabs(x))
UNARY(sign_f64, double, , SIGN(double))
UNARY(exp_f64, double, , exp(x))
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
    [RB_OP_GELU] = {gelu_f32},
};

int rb_cpu_unary(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    const struct unary_rows *rows = &unary_rows[call->op];
    enum rb_dtype dtype = computed(rb_call_in(call, 0)->dtype);
    rb_point_row *row = dtype == RB_F32   ? rows->f32
                        : dtype == RB_F64 ? rows->f64
                        : dtype == RB_I32 ? rows->i32
                        : dtype == RB_I64 ? rows->i64
                                          : NULL;

    (void)cpu;
    if (call->n_in != 1 || call->n_out != 1 || computed(call->out[0].dtype) != dtype)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "one input and an output of its type are needed");
    if (!row)
        return rb_call_refuse(call, RB_EUNSUPPORTED, why, "not for this type");
    if (call->op == RB_OP_GELU && rb_call_int(call, "tanh", 0))
        row = gelu_tanh_f32;
    return point_new(call, row, dtype, ret_kernel, why);
}

/* The usual case is a mask over a tensor, with one number where the mask says no. */
#define WHERE(name, T)                                                                             \
    RB_CLONES static void name(const void *const *in, const int64_t *step, void *out, int64_t n)   \
    {                                                                                              \
        const uint8_t *restrict c = in[0];                                                         \
        const T *restrict a = in[1], *restrict b = in[2];                                          \
        T *restrict r = out;                                                                       \
        if (step[0] && step[1] && step[2])                                                         \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T yes = a[i], no = b[i];                                                           \
                r[i] = c[i] ? yes : no;                                                            \
            }                                                                                      \
        else if (step[0] && step[1])                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T yes = a[i], no = *b;                                                             \
                r[i] = c[i] ? yes : no;                                                            \
            }                                                                                      \
        else if (step[0] && step[2])                                                               \
            for (int64_t i = 0; i < n; i++) {                                                      \
                T yes = *a, no = b[i];                                                             \
                r[i] = c[i] ? yes : no;                                                            \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                r[i] = c[step[0] ? i : 0] ? a[step[1] ? i : 0] : b[step[2] ? i : 0];               \
    }
WHERE(where_1, uint8_t)
WHERE(where_2, uint16_t)
WHERE(where_4, uint32_t)
WHERE(where_8, uint64_t)

int rb_cpu_where(struct rb_cpu *cpu, const struct rb_call *call, struct rb_kernel **ret_kernel,
                 struct rb_why *why)
{
    enum rb_dtype dtype = rb_call_out(call, 0)->dtype;
    size_t size = rb_dtype_size(dtype);

    (void)cpu;
    if (call->n_in != 3 || call->n_out != 1 || call->in[0].dtype != RB_BOOL ||
        call->in[1].dtype != dtype || call->in[2].dtype != dtype || size == 0)
        return rb_call_refuse(call, RB_EINVAL, why,
                              "a condition and two values of the output's type are needed");
    return point_new(call,
                     size == 1   ? where_1
                     : size == 2 ? where_2
                     : size == 4 ? where_4
                                 : where_8,
                     dtype, ret_kernel, why);
}

rb_point_row *rb_point_float_row(enum rb_op op, bool tanh_form)
{
    if (op == RB_OP_WHERE)
        return where_4;
    if (op == RB_OP_GELU && tanh_form)
        return gelu_tanh_f32;
    if (unary_rows[op].f32)
        return unary_rows[op].f32;
    if (op >= RB_OP_ADD && op < RB_OP_WHERE)
        return binary_row(op, RB_F32, false);
    return grad_row(op, tanh_form);
}
