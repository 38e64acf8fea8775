/* SPDX-License-Identifier: Apache-2.0 */
/* Folding of elementwise operators.  Floats are computed in double and rounded once: for + - * /
 * and square roots that is what float arithmetic gives.  A NaN stays one, as in the kernels. */
#include "graph/fold.h"

#include <math.h>

static void store_real(const struct rb_tensor_type *type, void *data, int64_t i, double x)
{
    if (type->dtype == RB_F64)
        ((double *)data)[i] = x;
    else
        ((float *)data)[i] = (float)x;
}

static bool store_integer(const struct rb_tensor_type *type, void *data, int64_t i, int64_t x)
{
    switch (type->dtype) {
    case RB_I64:
    case RB_U64:
        ((int64_t *)data)[i] = x;
        return true;
    case RB_I32:
    case RB_U32:
        ((uint32_t *)data)[i] = (uint32_t)x;
        return true;
    case RB_I16:
    case RB_U16:
        ((uint16_t *)data)[i] = (uint16_t)x;
        return true;
    case RB_I8:
    case RB_U8:
        ((uint8_t *)data)[i] = (uint8_t)x;
        return true;
    default:
        return false;
    }
}

static bool is_real(enum rb_dtype dtype)
{
    return dtype == RB_F32 || dtype == RB_F64;
}

static bool is_integer(enum rb_dtype dtype)
{
    return dtype == RB_I64 || dtype == RB_I32 || dtype == RB_U64 || dtype == RB_U32 ||
           dtype == RB_I16 || dtype == RB_U16 || dtype == RB_I8 || dtype == RB_U8 ||
           dtype == RB_BOOL;
}

static bool real_unary(enum rb_op op, double x, double *ret)
{
    switch (op) {
    case RB_OP_NEG:
        *ret = -x;
        return true;
    case RB_OP_ABS:
        *ret = fabs(x);
        return true;
    case RB_OP_SIGN:
        *ret = x > 0 ? 1 : x < 0 ? -1 : x;
        return true;
    case RB_OP_EXP:
        *ret = exp(x);
        return true;
    case RB_OP_EXPM1:
        *ret = expm1(x);
        return true;
    case RB_OP_LOG:
        *ret = log(x);
        return true;
    case RB_OP_SQRT:
        *ret = sqrt(x);
        return true;
    case RB_OP_RECIPROCAL:
        *ret = 1 / x;
        return true;
    case RB_OP_SIN:
        *ret = sin(x);
        return true;
    case RB_OP_COS:
        *ret = cos(x);
        return true;
    case RB_OP_TAN:
        *ret = tan(x);
        return true;
    case RB_OP_ASIN:
        *ret = asin(x);
        return true;
    case RB_OP_ACOS:
        *ret = acos(x);
        return true;
    case RB_OP_ATAN:
        *ret = atan(x);
        return true;
    case RB_OP_SINH:
        *ret = sinh(x);
        return true;
    case RB_OP_COSH:
        *ret = cosh(x);
        return true;
    case RB_OP_ASINH:
        *ret = asinh(x);
        return true;
    case RB_OP_ACOSH:
        *ret = acosh(x);
        return true;
    case RB_OP_ATANH:
        *ret = atanh(x);
        return true;
    case RB_OP_FLOOR:
        *ret = floor(x);
        return true;
    case RB_OP_CEIL:
        *ret = ceil(x);
        return true;
    case RB_OP_ROUND:
        *ret = rint(x);
        return true;
    case RB_OP_TANH:
        *ret = tanh(x);
        return true;
    case RB_OP_SIGMOID:
        *ret = 1 / (1 + exp(-x));
        return true;
    case RB_OP_ERF:
        *ret = erf(x);
        return true;
    case RB_OP_RELU:
        *ret = x <= 0 ? 0 : x;
        return true;
    default:
        return false;
    }
}

static bool real_binary(enum rb_op op, double a, double b, double *ret)
{
    switch (op) {
    case RB_OP_ADD:
        *ret = a + b;
        return true;
    case RB_OP_SUB:
        *ret = a - b;
        return true;
    case RB_OP_MUL:
        *ret = a * b;
        return true;
    case RB_OP_DIV:
        *ret = a / b;
        return true;
    case RB_OP_MAX:
        *ret = a > b || a != a ? a : b;
        return true;
    case RB_OP_MIN:
        *ret = a < b || a != a ? a : b;
        return true;
    case RB_OP_POW:
        *ret = pow(a, b);
        return true;
    default:
        return false;
    }
}

static int64_t power(int64_t base, int64_t exponent)
{
    uint64_t result = 1, b = (uint64_t)base;

    if (exponent < 0)
        return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
    for (; exponent; exponent >>= 1, b *= b)
        if (exponent & 1)
            result *= b;
    return (int64_t)result;
}

/* Integers wrap, as they do in every ONNX runtime; 1 done, 0 no such operator, or an error. */
static int integer_binary(enum rb_op op, int64_t a, int64_t b, int64_t *ret, struct rb_why *why)
{
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;

    switch (op) {
    case RB_OP_ADD:
        *ret = (int64_t)(ua + ub);
        return 1;
    case RB_OP_SUB:
        *ret = (int64_t)(ua - ub);
        return 1;
    case RB_OP_MUL:
        *ret = (int64_t)(ua * ub);
        return 1;
    case RB_OP_DIV:
        if (b == 0)
            return rb_why_set(why, RB_EINVAL, "division of an integer by zero");
        *ret = b == -1 ? (int64_t)(0 - ua) : a / b;
        return 1;
    case RB_OP_MOD: /* has the sign of b */
        if (b == 0)
            return rb_why_set(why, RB_EINVAL, "division of an integer by zero");
        *ret = b == -1 ? 0 : a % b;
        if (*ret && (*ret < 0) != (b < 0))
            *ret += b;
        return 1;
    case RB_OP_MAX:
        *ret = a > b ? a : b;
        return 1;
    case RB_OP_MIN:
        *ret = a < b ? a : b;
        return 1;
    case RB_OP_POW:
        *ret = power(a, b);
        return 1;
    default:
        return 0;
    }
}

static bool compare_real(enum rb_op op, double a, double b)
{
    return op == RB_OP_EQUAL ? a == b : op == RB_OP_LESS ? a < b : a > b;
}

static bool compare_integer(enum rb_op op, int64_t a, int64_t b)
{
    return op == RB_OP_EQUAL ? a == b : op == RB_OP_LESS ? a < b : a > b;
}

static int fold_unary(const struct rb_node *node, void *data)
{
    const struct rb_value *x = node->in[0];
    const struct rb_tensor_type *type = &node->out[0]->type;
    int64_t n = rb_tensor_elements(type);

    for (int64_t i = 0; i < n; i++) {
        double real;
        int64_t integer;

        if (is_real(type->dtype)) {
            if (!real_unary(node->op, rb_fold_real(x, i), &real))
                return 0;
            store_real(type, data, i, real);
            continue;
        }
        integer = rb_fold_integer(x, i);
        if (node->op == RB_OP_NEG)
            integer = (int64_t)(0 - (uint64_t)integer);
        else if (node->op == RB_OP_ABS)
            integer = integer < 0 ? (int64_t)(0 - (uint64_t)integer) : integer;
        else if (node->op == RB_OP_SIGN)
            integer = (integer > 0) - (integer < 0);
        else if (node->op == RB_OP_RELU)
            integer = integer > 0 ? integer : 0;
        else
            return 0;
        if (!store_integer(type, data, i, integer))
            return 0;
    }
    return 1;
}

static int fold_binary(const struct rb_node *node, void *data, struct rb_why *why)
{
    const struct rb_graph_attribute *fmod = rb_node_attribute(node, "fmod");
    const struct rb_value *a = node->in[0], *b = node->in[1];
    const struct rb_tensor_type *type = &node->out[0]->type;
    int64_t n = rb_tensor_elements(type);

    if (fmod && fmod->ints[0])
        return 0; /* no exporter computes shapes with it */
    for (int64_t i = 0; i < n; i++) {
        int64_t at_a = rb_fold_broadcast_at(type, i, &a->type);
        int64_t at_b = rb_fold_broadcast_at(type, i, &b->type);
        double real;
        int64_t integer = 0;
        int done;

        if (is_real(type->dtype)) {
            if (!real_binary(node->op, rb_fold_real(a, at_a), rb_fold_real(b, at_b), &real))
                return 0;
            store_real(type, data, i, real);
            continue;
        }
        done = integer_binary(node->op, rb_fold_integer(a, at_a), rb_fold_integer(b, at_b),
                              &integer, why);
        if (done != 1)
            return done;
        if (!store_integer(type, data, i, integer))
            return 0;
    }
    return 1;
}

static int fold_compare(const struct rb_node *node, uint8_t *data)
{
    const struct rb_value *a = node->in[0], *b = node->in[1];
    const struct rb_tensor_type *type = &node->out[0]->type;
    int64_t n = rb_tensor_elements(type);

    for (int64_t i = 0; i < n; i++) {
        int64_t at_a = rb_fold_broadcast_at(type, i, &a->type);
        int64_t at_b = rb_fold_broadcast_at(type, i, &b->type);

        if (is_integer(a->type.dtype))
            data[i] = compare_integer(node->op, rb_fold_integer(a, at_a), rb_fold_integer(b, at_b));
        else
            data[i] = compare_real(node->op, rb_fold_real(a, at_a), rb_fold_real(b, at_b));
    }
    return 1;
}

static int fold_cast(const struct rb_node *node, void *data)
{
    const struct rb_value *x = node->in[0];
    const struct rb_tensor_type *type = &node->out[0]->type;
    int64_t n = rb_tensor_elements(type);

    for (int64_t i = 0; i < n; i++) {
        if (type->dtype == RB_BOOL)
            ((uint8_t *)data)[i] = rb_fold_real(x, i) != 0;
        else if (type->dtype == RB_F16)
            ((uint16_t *)data)[i] = rb_dtype_to_half((float)rb_fold_real(x, i));
        else if (type->dtype == RB_BF16)
            ((uint16_t *)data)[i] = rb_dtype_to_bfloat((float)rb_fold_real(x, i));
        else if (type->dtype == RB_F32 && x->type.dtype == RB_U64) /* rounded once */
            ((float *)data)[i] = (float)rb_fold_unsigned(x, i);
        else if (type->dtype == RB_F32 && is_integer(x->type.dtype))
            ((float *)data)[i] = (float)rb_fold_integer(x, i);
        else if (is_real(type->dtype))
            store_real(type, data, i, rb_fold_real(x, i));
        else if (type->dtype == RB_U64)
            ((uint64_t *)data)[i] = rb_fold_unsigned(x, i);
        else if (!store_integer(type, data, i, rb_fold_integer(x, i)))
            return 0;
    }
    return 1;
}

int rb_fold_point(const struct rb_node *node, void *const *data, struct rb_why *why)
{
    if (rb_op_info(node->op)->kind != RB_KIND_POINT || node->n_out != 1)
        return 0;
    switch (node->op) {
    case RB_OP_CAST:
        return fold_cast(node, data[0]);
    case RB_OP_EQUAL:
    case RB_OP_LESS:
    case RB_OP_GREATER:
        return fold_compare(node, data[0]);
    case RB_OP_WHERE:
        return 0; /* moves elements of any type: fold_move.c */
    default:
        if (!is_real(node->out[0]->type.dtype) && !is_integer(node->out[0]->type.dtype))
            return 0;
        return node->n_in == 1   ? fold_unary(node, data[0])
               : node->n_in == 2 ? fold_binary(node, data[0], why)
                                 : 0;
    }
}
