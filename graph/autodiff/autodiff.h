/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient rules: one table from operator to function, and the helpers that a rule may call.
 *
 * autodiff.c (driver) > [autodiff] > point.c, move.c, product.c, norm.c, loss.c
 *
 * A rule is written as expressions: helpers that fail remember the first error in the rb_diff and
 * return NULL, and with an error set they do nothing, so only the driver looks. */
#ifndef RB_GRAPH_AUTODIFF_AUTODIFF_H
#define RB_GRAPH_AUTODIFF_AUTODIFF_H

#include "graph/graph.h"

/* X(OPERATOR, rule).  An operator that is not listed cannot lie between the loss and a weight. */
#define RB_DIFF_RULES(X)                                                                           \
    X(RESHAPE, reshape_rule)                                                                       \
    X(ADD, add)                                                                                    \
    X(SUB, sub)                                                                                    \
    X(MUL, mul)                                                                                    \
    X(DIV, div)                                                                                    \
    X(POW, pow)                                                                                    \
    X(MAX, extreme)                                                                                \
    X(MIN, extreme)                                                                                \
    X(MOD, mod)                                                                                    \
    X(WHERE, where)                                                                                \
    X(NEG, neg)                                                                                    \
    X(ABS, abs)                                                                                    \
    X(SIGN, sign)                                                                                  \
    X(EXP, exp)                                                                                    \
    X(EXPM1, expm1)                                                                                \
    X(LOG, log)                                                                                    \
    X(SQRT, sqrt)                                                                                  \
    X(FLOOR, sign)                                                                                 \
    X(CEIL, sign)                                                                                  \
    X(ROUND, sign)                                                                                 \
    X(SIN, sin)                                                                                    \
    X(COS, cos)                                                                                    \
    X(TAN, tan)                                                                                    \
    X(ASIN, asin)                                                                                  \
    X(ACOS, acos)                                                                                  \
    X(ATAN, atan)                                                                                  \
    X(SINH, sinh)                                                                                  \
    X(COSH, cosh)                                                                                  \
    X(ASINH, asinh)                                                                                \
    X(ACOSH, acosh)                                                                                \
    X(ATANH, atanh)                                                                                \
    X(SOFTPLUS, softplus)                                                                          \
    X(RECIPROCAL, reciprocal)                                                                      \
    X(TANH, tanh)                                                                                  \
    X(SIGMOID, sigmoid)                                                                            \
    X(ERF, erf)                                                                                    \
    X(RELU, relu)                                                                                  \
    X(GELU, gelu)                                                                                  \
    X(CAST, cast)                                                                                  \
    X(TRANSPOSE, transpose)                                                                        \
    X(EXPAND, expand_rule)                                                                         \
    X(CONCAT, concat)                                                                              \
    X(SPLIT, split)                                                                                \
    X(SLICE, slice)                                                                                \
    X(SLICE_GRAD, slice_grad)                                                                      \
    X(TRILU, trilu)                                                                                \
    X(GATHER, gather)                                                                              \
    X(GATHER_ELEMENTS, gather_elements)                                                            \
    X(SCATTER, scatter)                                                                            \
    X(REDUCE_SUM, reduce_sum)                                                                      \
    X(REDUCE_MEAN, reduce_mean)                                                                    \
    X(CUM_SUM, cum_sum)                                                                            \
    X(TOP_K, top_k)                                                                                \
    X(REDUCE_MAX, reduce_max)                                                                      \
    X(SOFTMAX, softmax)                                                                            \
    X(LOG_SOFTMAX, log_softmax)                                                                    \
    X(MATMUL, matmul)                                                                              \
    X(ATTENTION, attention)                                                                        \
    X(CONV, conv)                                                                                  \
    X(CONV_GRAD_X, conv_grad_x)                                                                    \
    X(LAYER_NORM, layer_norm)                                                                      \
    X(BATCH_NORM, batch_norm)                                                                      \
    X(BATCH_NORM_EVAL, batch_norm_eval)                                                            \
    X(MAX_POOL, max_pool)                                                                          \
    X(AVERAGE_POOL, average_pool)                                                                  \
    X(DROPOUT, dropout)                                                                            \
    X(CROSS_ENTROPY, cross_entropy)                                                                \
    X(MSE, mse)                                                                                    \
    X(BCE_LOGITS, bce_logits)                                                                      \
    X(GRAPH_LOSS, graph_loss)                                                                      \
    X(SPREAD, spread)

struct rb_diff {
    struct rb_graph *graph;
    struct rb_why *why;
    int err;                   /* the first error; sticky */
    struct rb_node *node;      /* the forward node whose rule runs */
    bool *wanted;              /* by id of a forward value: a gradient must reach it */
    struct rb_diff_use **uses; /* by id of a forward value: gradients so far, last use first */
    int n_forward;             /* forward values */
    int room;                  /* of graph->contributions */
};

/* dy[i]: the gradient of output i, NULL where none reaches it; for a loss, all NULL. */
typedef void rb_diff_rule(struct rb_diff *diff, struct rb_node *node, struct rb_value *const *dy);

#define X(op, rule) extern rb_diff_rule rb_diff_##rule;
RB_DIFF_RULES(X)
#undef X

/* Does input `slot` of the node take a gradient? */
bool rb_diff_wants(const struct rb_diff *diff, const struct rb_node *node, int slot);

/* Hand on the gradient of an input; it has that input's type.  Ignored where the input wants
 * none. */
void rb_diff_give(struct rb_diff *diff, const struct rb_node *node, int slot,
                  struct rb_value *gradient);

/* One node with one output.  `like`: the type of the output where inputs do not tell, or NULL. */
struct rb_value *rb_diff_make(struct rb_diff *diff, enum rb_op op,
                              const struct rb_tensor_type *like, int n_in,
                              struct rb_value *const *in, int n_attributes,
                              const struct rb_graph_attribute *attributes);
struct rb_value *rb_diff_one(struct rb_diff *diff, enum rb_op op, struct rb_value *x);
struct rb_value *rb_diff_two(struct rb_diff *diff, enum rb_op op, struct rb_value *a,
                             struct rb_value *b);

/* A number of the type of `like`. */
struct rb_value *rb_diff_number(struct rb_diff *diff, const struct rb_value *like, double x);
/* x times a number; x itself for 1. */
struct rb_value *rb_diff_scale(struct rb_diff *diff, struct rb_value *x, double factor);
/* x with another shape; x itself where it has it. */
struct rb_value *rb_diff_reshape(struct rb_diff *diff, struct rb_value *x,
                                 const struct rb_tensor_type *type);
/* Undo broadcasting: sum x over the axes that `type` lacks or has as 1. */
struct rb_value *rb_diff_sum_to(struct rb_diff *diff, struct rb_value *x,
                                const struct rb_tensor_type *type);
/* x broadcast to `type`; x itself where it has that shape. */
struct rb_value *rb_diff_expand(struct rb_diff *diff, struct rb_value *x,
                                const struct rb_tensor_type *type);
/* Output `i` of a forward node, added now if the import left it out. */
struct rb_value *rb_diff_output(struct rb_diff *diff, struct rb_node *node, int i,
                                const struct rb_tensor_type *type);

/* Say that this node cannot be differentiated: "node 'x' (Gather): <format>". */
void rb_diff_refuse(struct rb_diff *diff, const struct rb_node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
