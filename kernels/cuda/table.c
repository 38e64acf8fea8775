/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cuda/cuda.h"

rb_cuda_prepare *const rb_cuda_table[RB_OP_COUNT] = {
    [RB_OP_RESHAPE] = rb_cuda_copy,
    [RB_OP_DETACH] = rb_cuda_copy,
    /* elementwise */
    [RB_OP_ADD... RB_OP_GREATER] = rb_cuda_binary,
    [RB_OP_WHERE] = rb_cuda_where,
    [RB_OP_NEG... RB_OP_GELU] = rb_cuda_unary,
    [RB_OP_EXPM1] = rb_cuda_unary,
    [RB_OP_CAST] = rb_cuda_cast,
    [RB_OP_RELU_GRAD... RB_OP_ERF_GRAD] = rb_cuda_point_grad,
    /* movement */
    [RB_OP_TRANSPOSE] = rb_cuda_move,
    [RB_OP_EXPAND] = rb_cuda_move,
    [RB_OP_CONCAT] = rb_cuda_parts,
    [RB_OP_SPLIT] = rb_cuda_parts,
    [RB_OP_SLICE] = rb_cuda_move,
    [RB_OP_SLICE_GRAD] = rb_cuda_slice_grad,
    [RB_OP_TRILU] = rb_cuda_move,
    [RB_OP_GATHER] = rb_cuda_gather,
    [RB_OP_GATHER_GRAD] = rb_cuda_gather_grad,
    [RB_OP_GATHER_ELEMENTS] = rb_cuda_gather_elements,
    [RB_OP_SCATTER] = rb_cuda_scatter,
    /* sums */
    [RB_OP_REDUCE_SUM] = rb_cuda_reduce,
    [RB_OP_REDUCE_MEAN] = rb_cuda_reduce,
    [RB_OP_REDUCE_MAX] = rb_cuda_reduce,
    [RB_OP_ARG_MAX] = rb_cuda_arg_max,
    [RB_OP_CUM_SUM] = rb_cuda_cum_sum,
    [RB_OP_TOP_K] = rb_cuda_top_k,
    [RB_OP_SOFTMAX... RB_OP_LOG_SOFTMAX_GRAD] = rb_cuda_softmax,
    /* products */
    [RB_OP_MATMUL] = rb_cuda_matmul,
    [RB_OP_ATTENTION] = rb_cuda_attention,
    [RB_OP_ATTENTION_GRAD] = rb_cuda_attention,
    [RB_OP_CONV... RB_OP_CONV_GRAD_W] = rb_cuda_conv,
    /* norms */
    [RB_OP_LAYER_NORM] = rb_cuda_layer_norm,
    [RB_OP_LAYER_NORM_GRAD] = rb_cuda_layer_norm_grad,
    [RB_OP_BATCH_NORM] = rb_cuda_batch_norm,
    [RB_OP_BATCH_NORM_EVAL] = rb_cuda_batch_norm_eval,
    [RB_OP_BATCH_NORM_GRAD] = rb_cuda_batch_norm_grad,
    /* pooling */
    [RB_OP_MAX_POOL] = rb_cuda_max_pool,
    [RB_OP_MAX_POOL_GRAD] = rb_cuda_max_pool_grad,
    [RB_OP_AVERAGE_POOL] = rb_cuda_average_pool,
    [RB_OP_AVERAGE_POOL_GRAD] = rb_cuda_average_pool_grad,
    /* randomness */
    [RB_OP_DROPOUT] = rb_cuda_dropout,
    [RB_OP_DROPOUT_GRAD] = rb_cuda_dropout,
    [RB_OP_UNIFORM] = rb_cuda_uniform,
    /* losses */
    [RB_OP_CROSS_ENTROPY] = rb_cuda_cross_entropy,
    [RB_OP_CROSS_ENTROPY_GRAD] = rb_cuda_cross_entropy_grad,
    [RB_OP_MSE] = rb_cuda_loss,
    [RB_OP_MSE_GRAD] = rb_cuda_loss_grad,
    [RB_OP_BCE_LOGITS] = rb_cuda_loss,
    [RB_OP_BCE_LOGITS_GRAD] = rb_cuda_loss_grad,
    [RB_OP_GRAPH_LOSS] = rb_cuda_graph_loss,
    /* several in one */
    [RB_OP_FUSED] = rb_cuda_fused,
};
