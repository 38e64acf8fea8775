/* SPDX-License-Identifier: Apache-2.0 */
/* The ONNX operators that can be imported, and by which function. */
#include "graph/import.h"

#include <string.h>

static const struct rb_import_op table[] = {
    {"Abs", rb_import_op_unary, RB_OP_ABS, 0},
    {"Add", rb_import_op_binary, RB_OP_ADD, 0},
    {"And", rb_import_op_logic, RB_OP_MUL, 0},
    {"AveragePool", rb_import_op_average_pool, RB_OP_AVERAGE_POOL, 0},
    {"BatchNormalization", rb_import_op_batch_norm, RB_OP_BATCH_NORM, 0},
    {"Cast", rb_import_op_cast, RB_OP_CAST, 0},
    {"Clip", rb_import_op_clip, RB_OP_NONE, 0},
    {"Concat", rb_import_op_concat, RB_OP_CONCAT, 0},
    {"Constant", rb_import_op_constant, RB_OP_NONE, 0},
    {"ConstantOfShape", rb_import_op_constant_of_shape, RB_OP_NONE, 0},
    {"Conv", rb_import_op_conv, RB_OP_CONV, 0},
    {"Div", rb_import_op_binary, RB_OP_DIV, 0},
    {"Dropout", rb_import_op_dropout, RB_OP_DROPOUT, 0},
    {"Equal", rb_import_op_binary, RB_OP_EQUAL, 0},
    {"Erf", rb_import_op_unary, RB_OP_ERF, 0},
    {"Exp", rb_import_op_unary, RB_OP_EXP, 0},
    {"Expand", rb_import_op_expand, RB_OP_EXPAND, 0},
    {"Flatten", rb_import_op_flatten, RB_OP_RESHAPE, 0},
    {"Gather", rb_import_op_gather, RB_OP_GATHER, 0},
    {"Gelu", rb_import_op_gelu, RB_OP_GELU, 20},
    {"Gemm", rb_import_op_gemm, RB_OP_MATMUL, 0},
    {"GlobalAveragePool", rb_import_op_global_pool, RB_OP_REDUCE_MEAN, 0},
    {"GlobalMaxPool", rb_import_op_global_pool, RB_OP_REDUCE_MAX, 0},
    {"Greater", rb_import_op_binary, RB_OP_GREATER, 0},
    {"GreaterOrEqual", rb_import_op_or_equal, RB_OP_GREATER, 12},
    {"Identity", rb_import_op_identity, RB_OP_NONE, 0},
    {"LayerNormalization", rb_import_op_layer_norm, RB_OP_LAYER_NORM, 17},
    {"Less", rb_import_op_binary, RB_OP_LESS, 0},
    {"LessOrEqual", rb_import_op_or_equal, RB_OP_LESS, 12},
    {"Log", rb_import_op_unary, RB_OP_LOG, 0},
    {"LogSoftmax", rb_import_op_softmax, RB_OP_LOG_SOFTMAX, 0},
    {"MatMul", rb_import_op_matmul, RB_OP_MATMUL, 0},
    {"Max", rb_import_op_extreme, RB_OP_GREATER, 0},
    {"MaxPool", rb_import_op_max_pool, RB_OP_MAX_POOL, 0},
    {"Min", rb_import_op_extreme, RB_OP_LESS, 0},
    {"Mul", rb_import_op_binary, RB_OP_MUL, 0},
    {"Neg", rb_import_op_unary, RB_OP_NEG, 0},
    {"NegativeLogLikelihoodLoss", rb_import_op_own_loss, RB_OP_NONE, 0},
    {"Not", rb_import_op_not, RB_OP_NONE, 0},
    {"Or", rb_import_op_logic, RB_OP_ADD, 0},
    {"Pow", rb_import_op_pow, RB_OP_POW, 0},
    {"Range", rb_import_op_range, RB_OP_NONE, 0},
    {"Reciprocal", rb_import_op_unary, RB_OP_RECIPROCAL, 0},
    {"ReduceMax", rb_import_op_reduce, RB_OP_REDUCE_MAX, 0},
    {"ReduceMean", rb_import_op_reduce, RB_OP_REDUCE_MEAN, 0},
    {"ReduceSum", rb_import_op_reduce, RB_OP_REDUCE_SUM, 0},
    {"Relu", rb_import_op_unary, RB_OP_RELU, 0},
    {"Reshape", rb_import_op_reshape, RB_OP_RESHAPE, 0},
    {"Shape", rb_import_op_shape, RB_OP_NONE, 0},
    {"Sigmoid", rb_import_op_unary, RB_OP_SIGMOID, 0},
    {"Sign", rb_import_op_unary, RB_OP_SIGN, 0},
    {"Size", rb_import_op_size, RB_OP_NONE, 0},
    {"Slice", rb_import_op_slice, RB_OP_SLICE, 0},
    {"Softmax", rb_import_op_softmax, RB_OP_SOFTMAX, 0},
    {"SoftmaxCrossEntropyLoss", rb_import_op_own_loss, RB_OP_LOG_SOFTMAX, 0},
    {"Split", rb_import_op_split, RB_OP_SPLIT, 0},
    {"Sqrt", rb_import_op_unary, RB_OP_SQRT, 0},
    {"Squeeze", rb_import_op_squeeze, RB_OP_RESHAPE, 0},
    {"Sub", rb_import_op_binary, RB_OP_SUB, 0},
    {"Tanh", rb_import_op_unary, RB_OP_TANH, 0},
    {"Transpose", rb_import_op_transpose, RB_OP_TRANSPOSE, 0},
    {"Trilu", rb_import_op_trilu, RB_OP_TRILU, 14},
    {"Unsqueeze", rb_import_op_unsqueeze, RB_OP_RESHAPE, 0},
    {"Where", rb_import_op_where, RB_OP_WHERE, 0},
};

const struct rb_import_op *rb_import_find(const char *name)
{
    for (size_t i = 0; i < RB_COUNT(table); i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}
