/* SPDX-License-Identifier: Apache-2.0 */
/* Do the data fit the model?  Asked once, at submit, so that no step fails for it.
 *
 * graph, rb_source_info > [check] > compile_graph, forward */
#ifndef RB_PLAN_COMPILE_CHECK_H
#define RB_PLAN_COMPILE_CHECK_H

#include "base/error.h"
#include "data/source.h"
#include "graph/graph.h"
#include "graph/onnx/onnx.h"

/* Are the model's inputs of types that data can have, with an axis for the batch? */
int rb_check_types(const struct rb_graph *graph, struct rb_why *why);

/* The features against the model's input: element type, shape (axes of 1 and flattening aside), and
 * where they are looked up in a table of V rows, that each is one of 0 to V - 1. */
int rb_check_features(const struct rb_graph *graph, const struct rb_source_info *info,
                      struct rb_why *why);

/* Likewise each input that the data have by its name: they have it. */
int rb_check_named(const struct rb_graph *graph, const struct rb_source_info *info,
                   struct rb_why *why);

/* Where a model with axes of no size does not take such samples: is it for one that has a size, and
 * another in the data?  It is said then with the axes as they are declared, and no node is blamed.
 */
int rb_check_declared(const struct rb_onnx *onnx, const struct rb_tensor_type *sample,
                      struct rb_why *why);

/* Does the model ask for nothing but features, targets and what the data have by name?  graph:
 * after rb_loss_attach, likewise below. */
int rb_check_inputs(const struct rb_graph *graph, struct rb_why *why);

/* That too, and integer targets against the number of classes (of the model's own loss too, where
 * they are its labels), or those of bce_with_logits against 0 and 1. */
int rb_check_targets(const struct rb_graph *graph, const struct rb_source_info *info,
                     int64_t ignore_index, struct rb_why *why);

/* Does the model's own loss leave out a target of the data, as far as is known? */
bool rb_check_ignores(const struct rb_graph *graph, const struct rb_source_info *info);

#endif
