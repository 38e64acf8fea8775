/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that training starts from, as safetensors.
 *
 * graph, pretrained > match > [initial] > compile, forward > a blob */
#ifndef RB_PLAN_COMPILE_INITIAL_H
#define RB_PLAN_COMPILE_INITIAL_H

#include "base/buffer.h"
#include "base/error.h"
#include "graph/graph.h"
#include "plan.pb-c.h"

/* All variables of `model` with the contents that the graph's initializers have, names as in ONNX;
 * model->aliases is set.
 *
 * weights: a file, an index or a folder (plan/compile/pretrained.h) whose tensors take the place of
 * initializers (plan/compile/match.h); NULL: none.  Halves, bfloat16 and float64 become float32.
 * key: what the user calls them, for messages.  ret_notes: lines for what the model or the file has
 * and the other lacks; NULL where weights is. */
int rb_initial_weights(const struct rb_graph *graph, const char *key, const char *weights,
                       Rb__Model *model, struct rb_buffer *ret_safetensors,
                       struct rb_buffer *ret_notes, struct rb_why *why);

#endif
