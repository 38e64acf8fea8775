/* SPDX-License-Identifier: Apache-2.0 */
/* Importing, from the inside: the state of one import and what the functions of the operators
 * share.
 *
 * import.c (the walk) > import_table.c (ONNX operator -> function) > import_*.c > [import.h] >
 * graph
 *
 * An import function reads its node's attributes and inputs, emits nodes of proto/operators.h and
 * binds the node's outputs.  Nodes whose inputs are known are folded as they are emitted, so shape
 * arithmetic never reaches the graph. */
#ifndef RB_GRAPH_IMPORT_H
#define RB_GRAPH_IMPORT_H

#include "graph/graph.h"
#include "graph/names.h"
#include "graph/onnx_model.h"

struct rb_import {
    const struct rb_onnx *model;
    const struct rb_import_options *options;
    struct rb_graph *graph;
    struct rb_why *why;
    int64_t opset;
    struct rb_names values;      /* ONNX name -> struct rb_value */
    struct rb_names symbols;     /* name of a symbolic axis -> its size (in the graph's arena) */
    const Onnx__NodeProto *node; /* the one being imported */
    const struct rb_import_op *op;
    const char *name; /* the node's, or its first output's */
};

typedef int rb_import_fn(struct rb_import *import);

/* One ONNX operator. */
struct rb_import_op {
    const char *name;
    rb_import_fn *fn;
    enum rb_op op; /* for functions that serve several */
    int64_t since; /* first opset in which its meaning is the one that fn knows; 0: all */
};

const struct rb_import_op *rb_import_find(const char *name); /* NULL: not supported */

/* ---- Attributes: absent ones leave *value as it is; one of another type is an error ---- */
int rb_import_int(struct rb_import *import, const char *key, int64_t *value);
int rb_import_float(struct rb_import *import, const char *key, float *value);
int rb_import_text(struct rb_import *import, const char *key, const char **value);
int rb_import_ints(struct rb_import *import, const char *key, const int64_t **values, int *n);
const Onnx__AttributeProto *rb_import_attribute(const struct rb_import *import, const char *key);

/* ---- Inputs and outputs ---- */
struct rb_value *rb_import_in(struct rb_import *import, int i); /* NULL: absent */
int rb_import_need(struct rb_import *import, int i, struct rb_value **ret);
bool rb_import_wants(const struct rb_import *import, int output); /* it has a name */
int rb_import_bind(struct rb_import *import, int output, struct rb_value *value);

/* Is it known now?  The contents of a given input become so by being asked for. */
bool rb_import_ask(struct rb_value *value);

/* An input that must be known now, as int64s (from int64 or int32).  NULL and 0 where absent. */
int rb_import_known_ints(struct rb_import *import, int i, const char *what, const int64_t **values,
                         int *n);
/* A known number of any type; absent: *value stays. */
int rb_import_known_float(struct rb_import *import, int i, const char *what, float *value);

/* Axes from the attribute "axes" before opset `since`, from input i after: 0 <= axis < rank. */
int rb_import_axes(struct rb_import *import, int64_t since, int i, int rank, int64_t *axes, int *n);
int rb_import_axis(struct rb_import *import, int64_t axis, int rank, int64_t *ret);

/* ---- Emitting ---- */
/* Like rb_graph_node, folding what is known.  ret_out: the first output (of the wanted ones). */
int rb_import_emit(struct rb_import *import, enum rb_op op, int n_in, struct rb_value *const *in,
                   int n_attributes, const struct rb_graph_attribute *attributes,
                   const struct rb_tensor_type *given, struct rb_value **ret_out);
int rb_import_emit_many(struct rb_import *import, enum rb_op op, int n_in,
                        struct rb_value *const *in, int n_attributes,
                        const struct rb_graph_attribute *attributes, unsigned want,
                        const struct rb_tensor_type *given, struct rb_value **ret_outs);
int rb_import_reshape(struct rb_import *import, struct rb_value *x, int rank, const int64_t *dim,
                      struct rb_value **ret_out);
int rb_import_cast(struct rb_import *import, struct rb_value *x, enum rb_dtype dtype,
                   struct rb_value **ret_out);
int rb_import_unary(struct rb_import *import, enum rb_op op, struct rb_value *x,
                    struct rb_value **ret_out);
int rb_import_binary(struct rb_import *import, enum rb_op op, struct rb_value *a,
                     struct rb_value *b, struct rb_value **ret_out);

/* A refusal: RB_EUNSUPPORTED and a sentence. */
#define RB_IMPORT_NO(import, ...)  rb_why_set((import)->why, RB_EUNSUPPORTED, __VA_ARGS__)
#define RB_IMPORT_BAD(import, ...) rb_why_set((import)->why, RB_EINVAL, __VA_ARGS__)

/* One function an operator or family, by file. */

/* import_point.c */
rb_import_fn rb_import_op_unary, rb_import_op_binary, rb_import_op_pow, rb_import_op_or_equal,
    rb_import_op_not, rb_import_op_logic, rb_import_op_extreme, rb_import_op_clip,
    rb_import_op_gelu, rb_import_op_where, rb_import_op_cast, rb_import_op_identity;
/* import_known.c */
rb_import_fn rb_import_op_constant, rb_import_op_constant_of_shape, rb_import_op_shape,
    rb_import_op_size, rb_import_op_range;
/* import_view.c */
rb_import_fn rb_import_op_reshape, rb_import_op_flatten, rb_import_op_squeeze,
    rb_import_op_unsqueeze;
/* import_move.c */
rb_import_fn rb_import_op_transpose, rb_import_op_expand, rb_import_op_concat, rb_import_op_split,
    rb_import_op_slice, rb_import_op_gather, rb_import_op_trilu;
/* import_product.c */
rb_import_fn rb_import_op_matmul, rb_import_op_gemm, rb_import_op_conv;
/* import_norm.c */
rb_import_fn rb_import_op_reduce, rb_import_op_softmax, rb_import_op_layer_norm,
    rb_import_op_batch_norm, rb_import_op_dropout;
/* import_pool.c */
rb_import_fn rb_import_op_max_pool, rb_import_op_average_pool, rb_import_op_global_pool;
/* import_loss.c */
rb_import_fn rb_import_op_own_loss;

/* Windows (import_window.c): strides, pads and dilations as the graph wants them, auto_pad
 * resolved. */
struct rb_import_window {
    int64_t kernel[RB_MAX_RANK], strides[RB_MAX_RANK], dilations[RB_MAX_RANK],
        pads[2 * RB_MAX_RANK];
    int n;
};
int rb_import_window(struct rb_import *import, const struct rb_value *x, const int64_t *kernel,
                     struct rb_import_window *ret);

#endif
