/* SPDX-License-Identifier: Apache-2.0 */
/* Do the data fit the model?  Asked once, at submit, so that no step fails over it.
 *
 * graph, rb_source_info > [check] > compile_graph, forward */
#ifndef RB_PLAN_COMPILE_CHECK_H
#define RB_PLAN_COMPILE_CHECK_H

#include "base/error.h"
#include "data/source.h"
#include "graph/graph.h"
#include "graph/onnx/onnx.h"

/* Do the model's inputs have types that data can have, and an axis for the batch? */
int rb_check_types(const struct rb_graph *graph, struct rb_why *why);

/* The features against the model's input: element type, shape (axes of 1 and flattening aside), and
 * where they index a table of V rows, that each is in 0 to V - 1. */
int rb_check_features(const struct rb_graph *graph, const struct rb_source_info *info,
                      struct rb_why *why);

/* The same for each input that the data must have by its name, and that they do have it. */
int rb_check_named(const struct rb_graph *graph, const struct rb_source_info *info,
                   struct rb_why *why);

/* Where a model with axes of no size does not take such samples: is the cause an axis that has a
 * size, and another size in the data?  The message then shows the axes as declared, and blames no
 * node. */
int rb_check_declared(const struct rb_onnx *onnx, const struct rb_tensor_type *sample,
                      struct rb_why *why);

/* Does the model read nothing but features, targets and what the data have by name?  graph: after
 * rb_loss_attach, likewise below. */
int rb_check_inputs(const struct rb_graph *graph, struct rb_why *why);

/* Also checks integer targets against the number of classes (of the model's own loss too, where
 * they are its labels), or the targets of bce_with_logits against 0 and 1. */
int rb_check_targets(const struct rb_graph *graph, const struct rb_source_info *info,
                     int64_t ignore_index, struct rb_why *why);

/* Does the model's own loss ignore a target of the data, as far as is known? */
bool rb_check_ignores(const struct rb_graph *graph, const struct rb_source_info *info);

#endif
