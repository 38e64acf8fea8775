/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of importing: the state of one import, and what the operators' functions share.
 *
 * import.c (the walk) > table.c (ONNX operator -> function) > the other files > [import] > graph
 *
 * An import function reads its node's attributes and inputs, emits nodes of proto/operators.h and
 * binds the node's outputs.  A node whose inputs are known is folded as it is emitted, so shape
 * arithmetic never reaches the graph. */
#ifndef RB_GRAPH_IMPORT_IMPORT_H
#define RB_GRAPH_IMPORT_IMPORT_H

#include "graph/graph.h"
#include "graph/names.h"
#include "graph/onnx/model.h"

/* A call of one of the model's functions: its body is imported in the place of the node. */
struct rb_import_call {
    const struct rb_onnx_function *function;
    const Onnx__NodeProto *node;
    const struct rb_import_call *outer; /* NULL: called by the graph itself */
    int depth;
};

struct rb_import {
    const struct rb_onnx *model;
    const struct rb_import_options *options;
    struct rb_graph *graph;
    struct rb_why *why;
    int64_t opset;
    const struct rb_import_call *call; /* the innermost; NULL: none */
    int called;                        /* nodes of functions' bodies so far */
    struct rb_names values;            /* ONNX name -> struct rb_value; a call has its own */
    struct rb_names sequences;         /* ONNX name -> const struct rb_sequence */
    struct rb_names symbols;     /* name of a symbolic axis -> its size (in the graph's arena) */
    const Onnx__NodeProto *node; /* the one being imported */
    const struct rb_import_op *op;
    const char *name;           /* the node's, or its first output's */
    int err;                    /* the first error of make.h */
    enum rb_dtype narrow, wide; /* inputs of type `narrow` are read as `wide`, and outputs back */
};

typedef int rb_import_fn(struct rb_import *import);

/* What the kernels compute in.  Inputs of other element types are cast to the nearest of these, and
 * outputs of that type back. */
enum rb_types {
    RB_TYPES_ANY,    /* elements are only moved, or the function handles types */
    RB_TYPES_NUMBER, /* float32, float64, int32, int64 */
    RB_TYPES_SIGNED, /* the same except uint64: as int64 half of its numbers change */
    RB_TYPES_FLOAT,  /* float32, float64 */
    RB_TYPES_REAL,   /* float32 */
};

enum rb_gradient {
    RB_GRADIENT_NONE, /* no real number goes in, or none comes out */
    RB_GRADIENT_ZERO, /* a step function */
    RB_GRADIENT_YES,
};

/* One ONNX operator. */
struct rb_import_op {
    const char *name;
    rb_import_fn *fn;
    enum rb_op op; /* for functions that serve several operators */
    int64_t since; /* first opset with a meaning that fn knows; 0: all */
    enum rb_types types;
    enum rb_gradient gradient;
    const char *limits; /* for users; "": none */
};

const struct rb_import_op *rb_import_find(const char *name); /* NULL: not supported */
/* Refuses the operator, with a way out where there is one; also a node whose input must be
 * known. */
int rb_import_unknown(struct rb_import *import);
const struct rb_import_op *rb_import_all(int *ret_n); /* by name */

/* A sequence of tensors, known now. */
struct rb_sequence {
    struct rb_value **items;
    int n;
};
int rb_import_bind_sequence(struct rb_import *import, int output,
                            const struct rb_sequence *sequence);

/* Make values of the model's inputs, or of the given ones. */
int rb_import_inputs(struct rb_import *import);

/* Import one node of the model, or of a branch of it. */
int rb_import_node(struct rb_import *import, const Onnx__NodeProto *node);

/* Import the nodes of a branch or of a loop's body in the place of import->node. */
int rb_import_inside(struct rb_import *import, const Onnx__GraphProto *branch);

/* Import the function's body in the place of import->node. */
int rb_import_call(struct rb_import *import, const struct rb_onnx_function *function);
/* List the other names that the model's Identity nodes give to weights and buffers.  A running
 * statistic has none. */
int rb_import_aliases(struct rb_import *import);
/* Is this name an input of the function that the call leaves out? */
bool rb_import_left_out(const struct rb_import *import, const char *name);
/* The attribute that an attribute of a body refers to: the call's, or its default; NULL: there is
 * neither. */
const Onnx__AttributeProto *rb_import_meant(const struct rb_import *import,
                                            const Onnx__AttributeProto *attribute);

/* ---- Attributes: absent ones leave *value as it is; one of another type is an error ---- */
int rb_import_int(struct rb_import *import, const char *key, int64_t *value);
int rb_import_float(struct rb_import *import, const char *key, float *value);
int rb_import_text(struct rb_import *import, const char *key, const char **value);
int rb_import_ints(struct rb_import *import, const char *key, const int64_t **values, int *n);
const Onnx__AttributeProto *rb_import_attribute(const struct rb_import *import, const char *key);

/* ---- Inputs and outputs ---- */
struct rb_value *rb_import_in(struct rb_import *import, int i); /* NULL: absent */
int rb_import_need(struct rb_import *import, int i, struct rb_value **ret);
/* The two inputs of an operator that broadcasts.  The second is shaped to stand where it belongs,
 * which `axis` said before opset 7. */
int rb_import_pair(struct rb_import *import, struct rb_value **ret_a, struct rb_value **ret_b);
bool rb_import_wants(const struct rb_import *import, int output); /* it has a name */
int rb_import_bind(struct rb_import *import, int output, struct rb_value *value);

/* Has the job frozen the tensor of this name? */
bool rb_import_freezes(const struct rb_import *import, const char *name);

/* Is the value known now?  Asking makes the contents of a given input known. */
bool rb_import_ask(struct rb_value *value);
/* Are all elements one number, known now? */
bool rb_import_is_one_number(struct rb_value *x);
/* The same for a value that decides sizes, and so is no weight: until then an initializer of floats
 * is taken for a weight. */
bool rb_import_settle(struct rb_value *value);

/* An input that must be known now, as int64s (from int64 or int32).  NULL and 0 where absent. */
int rb_import_known_ints(struct rb_import *import, int i, const char *what, const int64_t **values,
                         int *n);
/* A known number of any type; absent: *value stays. */
int rb_import_known_float(struct rb_import *import, int i, const char *what, float *value);

/* Axes from the attribute "axes" before opset `since`, from input i after: 0 <= axis < rank. */
int rb_import_axes(struct rb_import *import, int64_t since, int i, int rank, int64_t *axes, int *n);
int rb_import_axis(struct rb_import *import, int64_t axis, int rank, int64_t *ret);

/* ---- Emitting ---- */
/* Like rb_graph_node, but folds known results.  ret_out: the first of the wanted outputs. */
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

/* One function an operator or family (table.c says which). */
rb_import_fn rb_import_op_arg, rb_import_op_attention, rb_import_op_average_pool,
    rb_import_op_batch_norm, rb_import_op_binary, rb_import_op_cast, rb_import_op_cast_like,
    rb_import_op_compare, rb_import_op_celu, rb_import_op_clip, rb_import_op_col2im,
    rb_import_op_concat, rb_import_op_concat_from_sequence, rb_import_op_constant,
    rb_import_op_constant_of_shape, rb_import_op_conv, rb_import_op_conv_transpose,
    rb_import_op_cum_sum, rb_import_op_depth_to_space, rb_import_op_dft, rb_import_op_bernoulli,
    rb_import_op_dropout, rb_import_op_random, rb_import_op_einsum, rb_import_op_elu,
    rb_import_op_expand, rb_import_op_extreme, rb_import_op_eye_like, rb_import_op_flatten,
    rb_import_op_gather, rb_import_op_gather_elements, rb_import_op_gather_nd, rb_import_op_gelu,
    rb_import_op_gemm, rb_import_op_global_pool, rb_import_op_grid_sample, rb_import_op_group_norm,
    rb_import_op_hard_sigmoid, rb_import_op_hard_swish, rb_import_op_hardmax, rb_import_op_identity,
    rb_import_op_if, rb_import_op_instance_norm, rb_import_op_is_inf, rb_import_op_is_nan,
    rb_import_op_layer_norm, rb_import_op_leaky_relu, rb_import_op_logic, rb_import_op_loop,
    rb_import_op_lrn, rb_import_op_matmul, rb_import_op_max_pool, rb_import_op_mean,
    rb_import_op_mean_variance, rb_import_op_mish, rb_import_op_non_zero, rb_import_op_mod,
    rb_import_op_not, rb_import_op_one_hot, rb_import_op_or_equal, rb_import_op_own_loss,
    rb_import_op_pad, rb_import_op_pow, rb_import_op_prelu, rb_import_op_range,
    rb_import_op_recurrent, rb_import_op_reduce, rb_import_op_reduce_l1, rb_import_op_reduce_l2,
    rb_import_op_reduce_log_sum, rb_import_op_reduce_log_sum_exp, rb_import_op_reduce_extreme,
    rb_import_op_reduce_prod, rb_import_op_reduce_sum_square, rb_import_op_reshape,
    rb_import_op_resize, rb_import_op_rotary, rb_import_op_rms_norm, rb_import_op_scatter_elements,
    rb_import_op_scatter_nd, rb_import_op_selu, rb_import_op_sequence_at,
    rb_import_op_sequence_construct, rb_import_op_sequence_empty, rb_import_op_sequence_erase,
    rb_import_op_sequence_insert, rb_import_op_sequence_length, rb_import_op_shape,
    rb_import_op_shrink, rb_import_op_size, rb_import_op_slice, rb_import_op_softmax,
    rb_import_op_softsign, rb_import_op_space_to_depth, rb_import_op_split,
    rb_import_op_split_to_sequence, rb_import_op_squeeze, rb_import_op_stft, rb_import_op_sum,
    rb_import_op_swish, rb_import_op_thresholded_relu, rb_import_op_tile, rb_import_op_top_k,
    rb_import_op_transpose, rb_import_op_trilu, rb_import_op_unary, rb_import_op_unsqueeze,
    rb_import_op_where, rb_import_op_window, rb_import_op_xor;

/* Windows (window.c): strides, pads and dilations in the graph's form, auto_pad resolved. */
struct rb_import_window {
    int64_t kernel[RB_MAX_RANK], strides[RB_MAX_RANK], dilations[RB_MAX_RANK],
        pads[2 * RB_MAX_RANK];
    int n;
};
int rb_import_window(struct rb_import *import, const struct rb_value *x, const int64_t *kernel,
                     struct rb_import_window *ret);

#endif
