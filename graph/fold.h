/* SPDX-License-Identifier: Apache-2.0 */
/* Constant folding: values that can be known at import are computed at import.
 *
 * import > [fold] > fuse, autodiff
 *
 * Shape arithmetic and masks live in constants of int64, bool and float32; products, convolutions
 * and random operators are left to the kernels. */
#ifndef RB_GRAPH_FOLD_H
#define RB_GRAPH_FOLD_H

#include "graph/graph.h"

/* Known contents that never change: a constant, or a buffer that is no statistic. */
bool rb_fold_known(const struct rb_value *value);

/* If all inputs of the newest node are known, make its outputs constants and drop the node. */
int rb_fold_newest(struct rb_graph *graph, struct rb_why *why);

/* The same for every node, in order. */
int rb_fold(struct rb_graph *graph, struct rb_why *why);

/* Element i of known contents, as a double, an int64 (floats are truncated and clamped; a uint64
 * keeps its bits) or a uint64 (floats are clamped at its upper end, negative numbers wrap). */
double rb_fold_real(const struct rb_value *value, int64_t i);
int64_t rb_fold_integer(const struct rb_value *value, int64_t i);
uint64_t rb_fold_unsigned(const struct rb_value *value, int64_t i);

/* ---- Between the files of folding: 1 folded, 0 not foldable, or an error ---- */
int rb_fold_point(const struct rb_node *node, void *const *data, struct rb_why *why);
int rb_fold_move(const struct rb_node *node, void *const *data, struct rb_why *why);

/* Where the element at `index` (row-major, of `type`) lies in a tensor broadcast to it. */
int64_t rb_fold_broadcast_at(const struct rb_tensor_type *type, int64_t index,
                             const struct rb_tensor_type *from);

#endif
