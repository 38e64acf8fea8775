/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that training starts from, as safetensors. */
#ifndef RB_PLAN_COMPILE_INITIAL_H
#define RB_PLAN_COMPILE_INITIAL_H

#include "base/buffer.h"
#include "base/error.h"
#include "graph/graph.h"
#include "plan.pb-c.h"

/* All variables of `model` with the contents that the graph's initializers have, names as in ONNX.
 * weights: a safetensors file whose tensors take the place of initializers of the same name (NULL:
 * none); a tensor that the model does not have, or has with another type, is RB_EINVAL. */
int rb_initial_weights(const struct rb_graph *graph, const Rb__Model *model, const char *weights,
                       struct rb_buffer *ret_safetensors, struct rb_why *why);

#endif
