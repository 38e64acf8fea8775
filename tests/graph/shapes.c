/* SPDX-License-Identifier: Apache-2.0 */
/* Type inference: for every operator its output types, and a case that it refuses.
 *
 * A case is a line of text: "f2,3 f3 | axis=1 epsilon=0.5 | f2,3 -> f2,3": inputs, attributes, the
 * given type (or types), the outputs.  f float32, d float64, l int64, i int32, u uint8, b bool; "f"
 * alone is a scalar, "-" an absent input or output, "!" instead of outputs a refusal. */
#include "graph/shapes/shapes.h"

#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka wants those above */
#include <cmocka.h>

struct test_case {
    enum rb_op op;
    const char *text;
};

static const struct test_case cases[] = {
    {RB_OP_RESHAPE, "f2,3 | | f6 -> f6"},
    {RB_OP_RESHAPE, "f2,3 | | f7 -> !"},
    {RB_OP_RESHAPE, "f2,3 | | -> !"},
    {RB_OP_DETACH, "f2,3 | | -> f2,3"},
    {RB_OP_ADD, "f2,1,3 f4,1 | | -> f2,4,3"},
    {RB_OP_ADD, "f2 f3 | | -> !"},
    {RB_OP_ADD, "f2 l2 | | -> !"},
    {RB_OP_ADD, "b2 b2 | | -> !"},
    {RB_OP_ADD, "f2 | | -> !"},
    {RB_OP_SUB, "l3 l | | -> l3"},
    {RB_OP_MUL, "f f | | -> f"},
    {RB_OP_DIV, "f2,2 f2,2 | | -> f2,2"},
    {RB_OP_POW, "f2 f | | -> f2"},
    {RB_OP_MAX, "f2,1 f3 | | -> f2,3"},
    {RB_OP_MIN, "l2 l | | -> l2"},
    {RB_OP_MOD, "i2 i2 | fmod=1 | -> i2"},
    {RB_OP_MOD, "i2 f2 | | -> !"},
    {RB_OP_EQUAL, "l2,1 l3 | | -> b2,3"},
    {RB_OP_LESS, "f2 f2 | | -> b2"},
    {RB_OP_GREATER, "f2 i2 | | -> !"},
    {RB_OP_LESS, "b2 b2 | | -> !"},
    {RB_OP_GREATER, "f2 f2 | | -> b2"},
    {RB_OP_WHERE, "b4,1 f3 f | | -> f4,3"},
    {RB_OP_WHERE, "f4,1 f3 f | | -> !"},
    {RB_OP_WHERE, "b4 f3 f | | -> !"},
    {RB_OP_NEG, "f2 | | -> f2"},
    {RB_OP_NEG, "b2 | | -> !"},
    {RB_OP_ABS, "f2 | | -> f2"},
    {RB_OP_SIGN, "f2 | | -> f2"},
    {RB_OP_EXP, "f2 | | -> f2"},
    {RB_OP_EXPM1, "f2 | | -> f2"},
    {RB_OP_LOG, "f2 | | -> f2"},
    {RB_OP_SQRT, "f2 | | -> f2"},
    {RB_OP_RECIPROCAL, "f2 | | -> f2"},
    {RB_OP_FLOOR, "f2 | | -> f2"},
    {RB_OP_CEIL, "f2 | | -> f2"},
    {RB_OP_ROUND, "f2 | | -> f2"},
    {RB_OP_SIN, "f2 | | -> f2"},
    {RB_OP_COS, "f2 | | -> f2"},
    {RB_OP_TAN, "f2 | | -> f2"},
    {RB_OP_ASIN, "f2 | | -> f2"},
    {RB_OP_ACOS, "f2 | | -> f2"},
    {RB_OP_ATAN, "f2 | | -> f2"},
    {RB_OP_SINH, "f2 | | -> f2"},
    {RB_OP_COSH, "f2 | | -> f2"},
    {RB_OP_ASINH, "f2 | | -> f2"},
    {RB_OP_ACOSH, "f2 | | -> f2"},
    {RB_OP_ATANH, "f2 | | -> f2"},
    {RB_OP_SOFTPLUS, "f2 | | -> f2"},
    {RB_OP_TANH, "f2 | | -> f2"},
    {RB_OP_SIGMOID, "f2 | | -> f2"},
    {RB_OP_ERF, "f2 | | -> f2"},
    {RB_OP_RELU, "f2 | | -> f2"},
    {RB_OP_GELU, "f2 | tanh=1 | -> f2"},
    {RB_OP_CAST, "f2,3 | | l -> l2,3"},
    {RB_OP_CAST, "f2,3 | | -> !"},
    {RB_OP_RELU_GRAD, "f2 f2 | | -> f2"},
    {RB_OP_RELU_GRAD, "f2 f3 | | -> !"},
    {RB_OP_GELU_GRAD, "f2 f2 | tanh=0 | -> f2"},
    {RB_OP_TANH_GRAD, "f2 f2 | | -> f2"},
    {RB_OP_SIGMOID_GRAD, "f2 f2 | | -> f2"},
    {RB_OP_ERF_GRAD, "f2 f2 | | -> f2"},
    {RB_OP_TRANSPOSE, "f2,3,4 | perm=2,0,1 | -> f4,2,3"},
    {RB_OP_TRANSPOSE, "f2,3,4 | perm=2,0,0 | -> !"},
    {RB_OP_TRANSPOSE, "f2,3,4 | perm=1,0 | -> !"},
    {RB_OP_EXPAND, "f3,1 | | f2,3,4 -> f2,3,4"},
    {RB_OP_EXPAND, "f3,2 | | f2,3,4 -> !"},
    {RB_OP_EXPAND, "f3,4 | | f3,1 -> !"},
    {RB_OP_CONCAT, "f2,3 f2,1 f2,2 | axis=1 | -> f2,6"},
    {RB_OP_CONCAT, "f2,3 f3,3 | axis=1 | -> !"},
    {RB_OP_CONCAT, "f2,3 | axis=2 | -> !"},
    {RB_OP_SPLIT, "f2,6 | axis=1 | f2,1 f2,5 -> f2,1 f2,5"},
    {RB_OP_SPLIT, "f2,6 | axis=1 | f2,1 f2,4 -> !"},
    {RB_OP_SPLIT, "f2,6 | axis=1 | f2,1 f1,5 -> !"},
    {RB_OP_SLICE, "f4,9 | starts=0,8 steps=1,-2 | f4,5 -> f4,5"},
    {RB_OP_SLICE, "f4,9 | starts=0,8 steps=1,-2 | f4,6 -> !"},
    {RB_OP_SLICE, "f4,9 | starts=0,8 steps=1,0 | f4,1 -> !"},
    {RB_OP_SLICE_GRAD, "f4,5 | starts=0,8 steps=1,-2 | f4,9 -> f4,9"},
    {RB_OP_SLICE_GRAD, "f4,5 | starts=0,4 steps=1,-2 | f4,9 -> !"},
    {RB_OP_TRILU, "f2,3,3 | upper=0 k=0 | -> f2,3,3"},
    {RB_OP_TRILU, "f3 | upper=0 k=0 | -> !"},
    {RB_OP_GATHER, "f9,4 l2,3 | axis=0 | -> f2,3,4"},
    {RB_OP_GATHER, "f2,9,4 i | axis=1 | -> f2,4"},
    {RB_OP_GATHER, "f9,4 f2 | axis=0 | -> !"},
    {RB_OP_SPREAD, "f2,3,5 | net=1 keeps=0,1,3 | f2,9,5 -> f2,9,5"},
    {RB_OP_SPREAD, "f2,3,5 | net=1 sends=1,0,3 | ->"},
    {RB_OP_SPREAD, "f2,3,5 | net=1 | f2,9,4 -> !"},
    {RB_OP_SPREAD, "f2,3,5 | net=1 | -> !"},
    {RB_OP_FOLD, "f2,9 | net=1 receives=1,0,9 | f2,3 -> f2,3"},
    {RB_OP_FOLD, "f2,9 | net=1 | f2 -> !"},
    {RB_OP_GATHER_GRAD, "f2,3,4 l2,3 | axis=0 | f9,4 -> f9,4"},
    {RB_OP_GATHER_GRAD, "f2,3,5 l2,3 | axis=0 | f9,4 -> !"},
    {RB_OP_GATHER_ELEMENTS, "f9,4 l12,3 | axis=0 | -> f12,3"},
    {RB_OP_GATHER_ELEMENTS, "f9,4 l12,5 | axis=0 | -> !"},
    {RB_OP_GATHER_ELEMENTS, "f9,4 l12 | axis=0 | -> !"},
    {RB_OP_GATHER_ELEMENTS, "f9,4 f9,4 | axis=0 | -> !"},
    {RB_OP_SCATTER, "f9,4 l2,3 f2,3 | axis=1 reduction=1 | -> f9,4"},
    {RB_OP_SCATTER, "f9,4 l2,3 f2,4 | axis=1 reduction=1 | -> !"},
    {RB_OP_SCATTER, "f9,4 l2,3 l2,3 | axis=1 reduction=1 | -> !"},
    {RB_OP_SCATTER, "f9,4 l2,3 f2,3 | axis=1 reduction=5 | -> !"},
    {RB_OP_ARG_MAX, "f2,3 | axis=1 | -> l2,1"},
    {RB_OP_ARG_MAX, "f2,3 | axis=0 smallest=1 | l3 -> l3"},
    {RB_OP_ARG_MAX, "f2,3 | axis=0 | l2 -> !"},
    {RB_OP_ARG_MAX, "f2,0 | axis=1 | -> !"},
    {RB_OP_CUM_SUM, "f2,3 | axis=1 exclusive=1 | -> f2,3"},
    {RB_OP_CUM_SUM, "f2,3 | axis=2 | -> !"},
    {RB_OP_TOP_K, "f2,5 | axis=1 | f2,3 -> f2,3 l2,3"},
    {RB_OP_TOP_K, "f2,5 | axis=1 | f2,6 -> !"},
    {RB_OP_TOP_K, "f2,5 | axis=1 | -> !"},
    {RB_OP_REDUCE_SUM, "f2,3,4 | axes=0,2 | -> f1,3,1"},
    {RB_OP_REDUCE_SUM, "f2,3,4 | axes=0,2 | f3 -> f3"},
    {RB_OP_REDUCE_SUM, "f2,3,4 | axes=0,2 | f4 -> !"},
    {RB_OP_REDUCE_SUM, "f2,3,4 | axes=3 | -> !"},
    {RB_OP_REDUCE_MEAN, "f2,3 | axes=1 | f2 -> f2"},
    {RB_OP_REDUCE_MAX, "f2,3 | axes=1,1 | -> !"},
    {RB_OP_REDUCE_MAX, "f2,3 | axes=0,1 | f -> f"},
    {RB_OP_SOFTMAX, "f2,3 | axis=1 | -> f2,3"},
    {RB_OP_SOFTMAX, "f2,3 | axis=-1 | -> !"},
    {RB_OP_SOFTMAX, "l2,3 | axis=1 | -> !"},
    {RB_OP_SOFTMAX_GRAD, "f2,3 f2,3 | axis=1 | -> f2,3"},
    {RB_OP_LOG_SOFTMAX, "f2,3 | axis=0 | -> f2,3"},
    {RB_OP_LOG_SOFTMAX_GRAD, "f2,3 f3,2 | axis=1 | -> !"},
    {RB_OP_LOG_SOFTMAX_GRAD, "f2,3 f2,3 | axis=1 | -> f2,3"},
    {RB_OP_MATMUL, "f5,1,2,3 f4,3,6 | | -> f5,4,2,6"},
    {RB_OP_MATMUL, "f7,2,3 f6,3 f6 | transB=1 | -> f7,2,6"},
    {RB_OP_MATMUL, "f3,2 f3,6 | transA=1 | -> f2,6"},
    {RB_OP_MATMUL, "f2,3 f6,3 | | -> !"},
    {RB_OP_MATMUL, "f2,3 f3 | | -> !"},
    {RB_OP_MATMUL, "f2,3 f3,6 f5 | | -> !"},
    {RB_OP_MATMUL, "f2,2,3 f3,3,6 | | -> !"},
    {RB_OP_CONV,
     "f2,4,9,9 f6,2,3,3 f6 | strides=2,1 pads=1,0,1,0 dilations=1,2 group=2 | -> f2,6,5,5"},
    {RB_OP_CONV, "f2,4,9 f6,4,3 | strides=1 pads=0,0 dilations=1 group=1 | -> f2,6,7"},
    {RB_OP_CONV, "f2,4,2 f6,4,3 | strides=1 pads=0,0 dilations=1 group=1 | -> !"},
    {RB_OP_CONV, "f2,4,9 f6,3,3 | strides=1 pads=0,0 dilations=1 group=1 | -> !"},
    {RB_OP_CONV, "f2,4,9 f6,4,3 | strides=0 pads=0,0 dilations=1 group=1 | -> !"},
    {RB_OP_CONV, "f2,4,9 f6,4,3 | strides=1 pads=-1,0 dilations=1 group=1 | -> !"},
    {RB_OP_CONV, "f2,4,9 f6,4,3 | strides=1 pads=0,0 dilations=1 group=0 | -> !"},
    {RB_OP_FUSED, "f2,3 f3 b | | f2,3 -> f2,3"},
    {RB_OP_FUSED, "f2,3 f4 | | f2,3 -> !"},
    {RB_OP_FUSED, "f2,3 f2,3 | | f3 -> !"},
    {RB_OP_UNIFORM, "f | | f2,3 -> f2,3"},
    {RB_OP_UNIFORM, "f | | -> !"},
    {RB_OP_UNIFORM, "f2 | | f2,3 -> !"},
    {RB_OP_ATTENTION, "f2,5,4 f2,6,4 f2,6,3 | scale=0.5 | -> f2,5,3 f2,5,1"},
    {RB_OP_ATTENTION, "f2,5,4 f2,6,4 f2,6,3 | scale=0.5 causal=1 | -> !"},
    {RB_OP_ATTENTION, "f2,5,4 f3,6,4 f2,6,3 | scale=0.5 | -> !"},
    {RB_OP_ATTENTION, "f2,5,4 f2,6,3 f2,6,3 | scale=0.5 | -> !"},
    {RB_OP_ATTENTION, "f2,5,4 f2,6,4 f2,5,3 | scale=0.5 | -> !"},
    {RB_OP_ATTENTION, "f2,5,4 f2,6,4 f2,6,3 | scale=0.5 ratio=1.5 | -> !"},
    {RB_OP_ATTENTION_GRAD,
     "f2,5,3 f2,5,4 f2,6,4 f2,6,3 f2,5,3 f2,5,1 | scale=0.5 key=7 | -> f2,5,4 f2,6,4 f2,6,3"},
    {RB_OP_ATTENTION_GRAD, "f2,5,3 f2,5,4 f2,6,4 f2,6,3 f2,5,3 f2,6,1 | scale=0.5 key=7 | -> !"},
    {RB_OP_CONV_GRAD_X,
     "f2,6,7 f6,4,3 | strides=1 pads=0,0 dilations=1 group=1 | f2,4,9 -> f2,4,9"},
    {RB_OP_CONV_GRAD_X, "f2,6,7 f6,4,3 | strides=1 pads=0,0 dilations=1 group=1 | f2,4,8 -> !"},
    {RB_OP_CONV_GRAD_W,
     "f2,6,7 f2,4,9 | strides=1 pads=0,0 dilations=1 group=1 | f6,4,3 -> f6,4,3"},
    {RB_OP_CONV_GRAD_W, "f2,6,7 f2,4,9 | strides=1 pads=0,0 dilations=1 group=1 | f6,4,4 -> !"},
    {RB_OP_LAYER_NORM, "f2,3,4 f4 f4 | axis=2 epsilon=0.5 | -> f2,3,4 f2,3,1 f2,3,1"},
    {RB_OP_LAYER_NORM, "f2,3,4 f3,4 | axis=1 epsilon=0.5 | -> f2,3,4 f2,1,1 f2,1,1"},
    {RB_OP_LAYER_NORM, "f2,3,4 f3 | axis=2 epsilon=0.5 | -> !"},
    {RB_OP_LAYER_NORM_GRAD,
     "f2,3,4 f2,3,4 f4 f2,3,1 f2,3,1 | axis=2 epsilon=0.5 | -> f2,3,4 f4 f4"},
    {RB_OP_LAYER_NORM_GRAD, "f2,3,4 f2,3,4 f4 f2,1,1 f2,3,1 | axis=2 epsilon=0.5 | -> !"},
    {RB_OP_BATCH_NORM, "f2,3,4,4 f3 f3 | epsilon=0.5 | -> f2,3,4,4 f3 f3 f3"},
    {RB_OP_BATCH_NORM, "f2,3,4,4 f4 f3 | epsilon=0.5 | -> !"},
    {RB_OP_BATCH_NORM_EVAL, "f2,3,4,4 f3 f3 f3 f3 | epsilon=0.5 | -> f2,3,4,4"},
    {RB_OP_BATCH_NORM_EVAL, "f2,3,4,4 f3 f3 f3 | epsilon=0.5 | -> !"},
    {RB_OP_BATCH_NORM_GRAD, "f2,3,4 f2,3,4 f3 f3 f3 | epsilon=0.5 | -> f2,3,4 f3 f3"},
    {RB_OP_MAX_POOL,
     "f2,3,7,7 | kernel=2,2 strides=2,2 pads=0,0,0,0 dilations=1,1 ceil=0 | -> f2,3,3,3 i2,3,3,3"},
    {RB_OP_MAX_POOL,
     "f2,3,7,7 | kernel=2,2 strides=2,2 pads=0,0,0,0 dilations=1,1 ceil=1 | -> f2,3,4,4"},
    {RB_OP_MAX_POOL, "f2,3,7 | kernel=2,2 strides=2 pads=0,0 dilations=1 ceil=0 | -> !"},
    {RB_OP_MAX_POOL_GRAD,
     "f2,3,3 i2,3,3 | kernel=2 strides=2 pads=0,0 dilations=1 ceil=0 | f2,3,7 -> f2,3,7"},
    {RB_OP_MAX_POOL_GRAD,
     "f2,3,3 l2,3,3 | kernel=2 strides=2 pads=0,0 dilations=1 ceil=0 | f2,3,7 -> !"},
    {RB_OP_AVERAGE_POOL, "f2,3,5 | kernel=3 strides=1 pads=1,1 ceil=0 countPad=1 | -> f2,3,5"},
    {RB_OP_AVERAGE_POOL, "f2,3,5 | kernel=3 strides=1 pads=2,2 ceil=0 countPad=1 | -> f2,3,7"},
    {RB_OP_AVERAGE_POOL, "f2,3,5 | kernel=3 strides=1 pads=3,0 ceil=0 countPad=1 | -> !"},
    {RB_OP_AVERAGE_POOL, "f2,3,5 | kernel=3 strides=1 pads=0,3 ceil=0 countPad=1 | -> !"},
    {RB_OP_MAX_POOL, "f1,1,5 | kernel=3 strides=1 pads=4,4 dilations=2 ceil=0 | -> f1,1,9 i1,1,9"},
    {RB_OP_MAX_POOL, "f1,1,5 | kernel=3 strides=1 pads=0,5 dilations=2 ceil=0 | -> !"},
    {RB_OP_MAX_POOL,
     "f1,1,1,1 | kernel=2,3 strides=1,1 pads=1,16777216,0,0 dilations=1,1 ceil=0 | -> !"},
    /* A convolution may be padded by more than a pool. */
    {RB_OP_CONV, "f2,4,9 f6,4,1 | strides=1 pads=1,1 dilations=1 group=1 | -> f2,6,11"},
    /* The last window would start in the padding. */
    {RB_OP_AVERAGE_POOL, "f1,1,3 | kernel=2 strides=2 pads=1,1 ceil=1 countPad=0 | -> f1,1,2"},
    {RB_OP_AVERAGE_POOL_GRAD,
     "f2,3,5 | kernel=3 strides=1 pads=1,1 ceil=0 countPad=1 | f2,3,5 -> f2,3,5"},
    {RB_OP_DROPOUT, "f2,3 | ratio=0.5 | -> f2,3"},
    {RB_OP_DROPOUT, "f2,3 | ratio=1.5 | -> !"},
    {RB_OP_DROPOUT_GRAD, "f2,3 | ratio=0.5 key=7 | -> f2,3"},
    {RB_OP_CROSS_ENTROPY,
     "f2,5,9 l2,5 | axis=2 ignoreIndex=-100 labelSmoothing=0.5 | -> d1 l1 l1 d2,5"},
    {RB_OP_CROSS_ENTROPY, "f2,9,5 u2,5 | axis=1 | -> d1 l1"},
    {RB_OP_CROSS_ENTROPY, "f2,5,9 l2,4 | axis=2 | -> !"},
    {RB_OP_CROSS_ENTROPY, "f2,5,9 f2,5 | axis=2 | -> !"},
    {RB_OP_CROSS_ENTROPY_GRAD, "f2,9 l2 d2 | axis=1 | -> f2,9"},
    {RB_OP_CROSS_ENTROPY_GRAD, "f2,9 l2 d3 | axis=1 | -> !"},
    {RB_OP_MSE, "f2,3 f2,3 | | -> d1 l1"},
    {RB_OP_MSE, "f2,3 f2 | | -> !"},
    {RB_OP_MSE_GRAD, "f2,3 f2,3 | | -> f2,3"},
    {RB_OP_BCE_LOGITS, "f2,3 f2,3 | | -> d1 l1 l1"},
    {RB_OP_BCE_LOGITS, "f2,3 l2,3 | | -> !"},
    {RB_OP_BCE_LOGITS_GRAD, "f2,3 f2,3 | | -> f2,3"},
    {RB_OP_GRAPH_LOSS, "f | samples=4 | -> d1 l1"},
    {RB_OP_GRAPH_LOSS, "f2 | samples=4 | -> !"},
};

static struct rb_tensor_type parse_type(char *word)
{
    static const struct {
        char letter;
        enum rb_dtype dtype;
    } letters[] = {{'f', RB_F32}, {'d', RB_F64}, {'l', RB_I64},
                   {'i', RB_I32}, {'u', RB_U8},  {'b', RB_BOOL}};
    struct rb_tensor_type type = {0};
    char *save = NULL;

    for (size_t i = 0; i < RB_COUNT(letters); i++)
        if (letters[i].letter == *word)
            type.dtype = letters[i].dtype;
    for (char *dim = strtok_r(word + 1, ",", &save); dim; dim = strtok_r(NULL, ",", &save))
        type.dim[type.rank++] = atoll(dim);
    return type;
}

/* "starts=0,8": integers, or one float where there is a point. */
static struct rb_graph_attribute parse_attribute(char *word, int64_t *ints, float *real)
{
    char *equals = strchr(word, '='), *save = NULL;
    int n = 0;

    *equals = '\0';
    if (strchr(equals + 1, '.')) {
        *real = strtof(equals + 1, NULL);
        return rb_attr_float(word, real);
    }
    for (char *at = strtok_r(equals + 1, ",", &save); at; at = strtok_r(NULL, ",", &save))
        ints[n++] = atoll(at);
    return rb_attr_ints(word, ints, n);
}

static int split(char *text, char **words)
{
    char *save = NULL;
    int n = 0;

    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        words[n++] = word;
    return n;
}

static void run(const struct test_case *test)
{
    char *text = strdup(test->text), *words[8], *attributes_at = strchr(text, '|') + 1;
    char *given_at = strchr(attributes_at, '|') + 1, *out_at = strstr(given_at, "->") + 2;
    struct rb_tensor_type given[4], type;
    struct rb_graph_attribute attributes[8];
    struct rb_graph *graph = rb_graph_new();
    struct rb_value *in[8];
    struct rb_why why = {0};
    struct rb_node *node = NULL;
    int64_t ints[8][8];
    float reals[8];
    int n_in, n_attributes, n_given, n_out, err;

    attributes_at[-1] = given_at[-1] = out_at[-2] = '\0';
    n_in = split(text, words);
    for (int i = 0; i < n_in; i++) {
        type = parse_type(words[i]);
        in[i] = rb_graph_value(graph, RB_VALUE_INPUT, "x", &type, NULL);
    }
    n_attributes = split(attributes_at, words);
    for (int i = 0; i < n_attributes; i++)
        attributes[i] = parse_attribute(words[i], ints[i], &reals[i]);
    n_given = split(given_at, words);
    for (int i = 0; i < n_given; i++)
        given[i] = parse_type(words[i]);
    n_out = split(out_at, words);
    err = rb_graph_node(graph, test->op, "n", n_in, in, n_attributes, attributes,
                        *words[0] == '!' ? (n_given > 1 ? 3 : 1) : (1u << n_out) - 1,
                        n_given ? given : NULL, &node, &why);
    if (*words[0] == '!') {
        if (!err || !why.text[0])
            fail_msg("%s %s is not refused", rb_op_info(test->op)->name, test->text);
        assert_int_equal(graph->n_nodes, 0);
    } else if (err) {
        fail_msg("%s %s: %s", rb_op_info(test->op)->name, test->text, why.text);
    }
    for (int i = 0; !err && i < n_out; i++) {
        char want[RB_TENSOR_TEXT], got[RB_TENSOR_TEXT];

        type = parse_type(words[i]);
        if (!rb_tensor_same(&type, &node->out[i]->type))
            fail_msg("%s %s: output %d is %s, not %s", rb_op_info(test->op)->name, test->text, i,
                     rb_tensor_text(&node->out[i]->type, got), rb_tensor_text(&type, want));
    }
    rb_graph_free(graph);
    free(text);
}

static void every_case(void **state)
{
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        run(&cases[i]);
}

static void every_operator_has_a_case(void **state)
{
    bool seen[RB_OP_COUNT] = {true};

    for (size_t i = 0; i < RB_COUNT(cases); i++)
        if (!strchr(cases[i].text, '!'))
            seen[cases[i].op] = true;
    for (int op = 1; op < RB_OP_COUNT; op++)
        if (!seen[op])
            fail_msg("%s has no case", rb_op_info((unsigned)op)->name);
}

/* No shape rule may assume an input or an attribute that is not there. */
static void nothing_given(void **state)
{
    static const char *const types[] = {"f", "f2", "f2,2", "f2,2,2", "l2,2", "b2"};

    for (int op = 1; op < RB_OP_COUNT; op++)
        for (size_t i = 0; i < RB_COUNT(types); i++) {
            struct rb_graph *graph = rb_graph_new();
            struct rb_why why = {0};
            char *word = strdup(types[i]);
            struct rb_tensor_type type = parse_type(word);
            struct rb_value *x = rb_graph_value(graph, RB_VALUE_INPUT, "x", &type, NULL);

            if (rb_graph_node(graph, (enum rb_op)op, "n", 1, &x, 0, NULL, 1, NULL, NULL, &why))
                assert_true(why.text[0] != '\0');
            assert_int_not_equal(
                rb_graph_node(graph, (enum rb_op)op, "n", 0, NULL, 0, NULL, 1, NULL, NULL, &why),
                0);
            free(word);
            rb_graph_free(graph);
        }
}

static void limits(void **state)
{
    struct rb_tensor_type type = {.dtype = RB_F32, .rank = 3, .dim = {1 << 20, 1 << 20, 0}};
    struct rb_why why;

    assert_int_equal(rb_shapes_check(&type, &why), 0);
    type.dim[2] = 1 << 5;
    assert_int_equal(rb_shapes_check(&type, &why), RB_ELIMIT);
    type.dim[2] = 0; /* a zero hides nothing */
    type.dim[0] = INT64_MAX;
    assert_int_equal(rb_shapes_check(&type, &why), RB_ELIMIT);
    type.dim[0] = -1;
    assert_int_equal(rb_shapes_check(&type, &why), RB_EINVAL);
    type.rank = 9;
    assert_int_equal(rb_shapes_check(&type, &why), RB_EINVAL);
    type.rank = 0;
    type.dtype = (enum rb_dtype)8;
    assert_int_equal(rb_shapes_check(&type, &why), RB_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case),
        cmocka_unit_test(every_operator_has_a_case),
        cmocka_unit_test(nothing_given),
        cmocka_unit_test(limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
