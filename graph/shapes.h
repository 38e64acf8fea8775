/* SPDX-License-Identifier: Apache-2.0 */
/* Type inference: what a node makes, from what it is given.
 *
 * rb_graph_node > [shapes] > the types of a node's outputs
 *
 * One function an operator or family, listed in one table (shapes.c).  Every function also checks:
 * a node that it lets through can be run, whatever file it came from. */
#ifndef RB_GRAPH_SHAPES_H
#define RB_GRAPH_SHAPES_H

#include "graph/graph.h"

enum {
    RB_SHAPES_OUTPUTS = 32,
    RB_SHAPES_TEXT = 128, /* room for rb_shapes_text */
};

/* One question. */
struct rb_shapes {
    const struct rb_node *node;         /* operator, inputs, attributes, number of outputs */
    const struct rb_tensor_type *given; /* as in rb_graph_node; SPLIT: one for each output */
    struct rb_why *why;
    struct rb_tensor_type out[RB_SHAPES_OUTPUTS]; /* the answer */
};

int rb_shapes_infer(struct rb_shapes *shapes);

/* Rank, dims and size in bytes are sane: at most 8 axes, none negative, below 2^46 bytes. */
int rb_shapes_check(const struct rb_tensor_type *type, struct rb_why *why);

/* "float32[4,128]" */
const char *rb_shapes_text(const struct rb_tensor_type *type, char room[RB_SHAPES_TEXT]);

bool rb_shapes_same_dims(const struct rb_tensor_type *a, const struct rb_tensor_type *b);
bool rb_shapes_same(const struct rb_tensor_type *a, const struct rb_tensor_type *b);

/* NumPy broadcasting of the first n_a and n_b axes; the result replaces `a`. */
bool rb_shapes_broadcast_dims(int64_t *a, int *n_a, const int64_t *b, int n_b);

/* ---- For the shape functions ------------------------------------------------------------------
 */

/* The type of input i, which the operator cannot do without; NULL (and a sentence) if absent. */
const struct rb_tensor_type *rb_shapes_in(struct rb_shapes *shapes, int i);

/* The attribute `key` as exactly n integers (n < 0: any number); NULL and a sentence otherwise. */
const int64_t *rb_shapes_ints(struct rb_shapes *shapes, const char *key, int n);

/* An axis attribute: present and within [0, rank). */
int rb_shapes_axis(struct rb_shapes *shapes, int rank, int *ret_axis);

int rb_shapes_want_f32(struct rb_shapes *shapes, int i);
int rb_shapes_want_given(struct rb_shapes *shapes);
int rb_shapes_want_same(struct rb_shapes *shapes, int i, int j); /* dims of two inputs */

/* Windows over the spatial axes (conv and pools), in the way of ONNX: pads are begins then ends. */
int rb_shapes_window(struct rb_shapes *shapes, const struct rb_tensor_type *x,
                     const int64_t *kernel, bool ceil, int64_t *ret_spatial);

#define RB_SHAPES_FUNCTIONS(X)                                                                     \
    X(reshape)                                                                                     \
    X(point)                                                                                       \
    X(compare) X(where) X(unary) X(cast) X(unary_grad) X(transpose) X(expand) X(concat) X(split)   \
        X(slice) X(slice_grad) X(trilu) X(gather) X(gather_grad) X(reduce) X(row) X(row_grad)      \
            X(matmul) X(conv) X(conv_grad_x) X(conv_grad_w) X(layer_norm) X(layer_norm_grad)       \
                X(batch_norm) X(batch_norm_eval) X(batch_norm_grad) X(max_pool) X(max_pool_grad)   \
                    X(average_pool) X(average_pool_grad) X(dropout) X(cross_entropy)               \
                        X(cross_entropy_grad) X(elementwise_loss) X(elementwise_loss_grad)         \
                            X(graph_loss)
#define X(name) int rb_shapes_##name(struct rb_shapes *shapes);
RB_SHAPES_FUNCTIONS(X)
#undef X

#endif
