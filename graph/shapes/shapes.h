/* SPDX-License-Identifier: Apache-2.0 */
/* Type inference: the types of a node's outputs, from its inputs and attributes.
 *
 * rb_graph_node > [shapes] > the types of a node's outputs
 *
 * One function an operator or family, listed in one table (shapes.c).  Every function also checks:
 * a node that passes can be run, whatever file it came from. */
#ifndef RB_GRAPH_SHAPES_SHAPES_H
#define RB_GRAPH_SHAPES_SHAPES_H

#include "graph/graph.h"

enum { RB_SHAPES_OUTPUTS = 32 };

/* One query. */
struct rb_shapes {
    const struct rb_node *node;         /* operator, inputs, attributes, number of outputs */
    const struct rb_tensor_type *given; /* as in rb_graph_node; SPLIT: one for each output */
    struct rb_why *why;
    struct rb_tensor_type out[RB_SHAPES_OUTPUTS]; /* the answer */
};

int rb_shapes_infer(struct rb_shapes *shapes);

/* Rank, dims and size in bytes are sane: at most 8 axes, none negative, below 2^46 bytes. */
int rb_shapes_check(const struct rb_tensor_type *type, struct rb_why *why);

/* The same shape once axes of 1 are left out: [32, 1] and [32]. */
bool rb_shapes_same_but_ones(const struct rb_tensor_type *a, const struct rb_tensor_type *b);

/* NumPy broadcasting of the first n_a and n_b axes; the result replaces `a`. */
bool rb_shapes_broadcast_dims(int64_t *a, int *n_a, const int64_t *b, int n_b);

/* ---- For the shape functions ---- */

/* The type of input i, which the operator requires; NULL (and a sentence) if absent. */
const struct rb_tensor_type *rb_shapes_in(struct rb_shapes *shapes, int i);

/* The attribute `key` as exactly n integers (n < 0: any number); NULL and a sentence otherwise. */
const int64_t *rb_shapes_ints(struct rb_shapes *shapes, const char *key, int n);

/* An axis attribute: present and within [0, rank). */
int rb_shapes_axis(struct rb_shapes *shapes, int rank, int *ret_axis);

int rb_shapes_want_f32(struct rb_shapes *shapes, int i);
int rb_shapes_want_given(struct rb_shapes *shapes);
int rb_shapes_want_same(struct rb_shapes *shapes, int i, int j); /* dims of two inputs */

/* Windows over the spatial axes (conv and pools), as in ONNX: pads are begins, then ends. */
int rb_shapes_window(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                     const int64_t *kernel, bool ceil, int64_t *ret_spatial);

typedef int rb_shapes_rule(struct rb_shapes *shapes);

/* point.c */
rb_shapes_rule rb_shapes_point, rb_shapes_fused, rb_shapes_compare, rb_shapes_where,
    rb_shapes_unary, rb_shapes_cast, rb_shapes_unary_grad, rb_shapes_row, rb_shapes_row_grad,
    rb_shapes_dropout, rb_shapes_uniform;
/* move.c */
rb_shapes_rule rb_shapes_reshape, rb_shapes_transpose, rb_shapes_expand, rb_shapes_concat,
    rb_shapes_split, rb_shapes_slice, rb_shapes_slice_grad, rb_shapes_trilu, rb_shapes_gather,
    rb_shapes_gather_grad, rb_shapes_exchange;
/* index.c */
rb_shapes_rule rb_shapes_gather_elements, rb_shapes_scatter, rb_shapes_arg_max, rb_shapes_cum_sum,
    rb_shapes_top_k;
/* product.c */
rb_shapes_rule rb_shapes_attention, rb_shapes_attention_grad, rb_shapes_matmul, rb_shapes_conv,
    rb_shapes_conv_grad_x, rb_shapes_conv_grad_w;
/* norm.c */
rb_shapes_rule rb_shapes_reduce, rb_shapes_layer_norm, rb_shapes_layer_norm_grad,
    rb_shapes_batch_norm, rb_shapes_batch_norm_eval, rb_shapes_batch_norm_grad;
/* pool.c */
rb_shapes_rule rb_shapes_max_pool, rb_shapes_max_pool_grad, rb_shapes_average_pool,
    rb_shapes_average_pool_grad;
/* loss.c */
rb_shapes_rule rb_shapes_cross_entropy, rb_shapes_cross_entropy_grad, rb_shapes_elementwise_loss,
    rb_shapes_elementwise_loss_grad, rb_shapes_graph_loss;

#endif
