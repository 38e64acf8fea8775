/* SPDX-License-Identifier: Apache-2.0 */
/* The generators behind `rubatoctl model new`: ONNX models without Python.
 *
 * kind, settings > [models] > model.onnx
 *
 * Opset 17, symbolic first axis "batch".  Weight names are those a PyTorch module of the same shape
 * would have; initial weights follow GPT-2 (0.02, residual projections scaled by 1/sqrt(2 layers))
 * and PyTorch's Linear and Conv2d (uniform within 1/sqrt(fan in)), from Philox with `seed`. */
#ifndef RB_GRAPH_MODELS_MODELS_H
#define RB_GRAPH_MODELS_MODELS_H

#include "base/error.h"

struct rb_buffer;

/* kind: gpt | mlp | cnn.  settings: n strings "key=value".
 *   gpt: vocab 256, layers 4, width 256, heads 4, seq 128, dropout 0, seed 1
 *   mlp: inputs 784, hidden 1024, depth 2, classes 10, seed 1
 *   cnn: image 32, channels 3, classes 10, batchnorm 0, dropout 0, seed 1
 * Unknown keys and values out of range are RB_EINVAL; the message names the known ones. */
int rb_models_new(const char *kind, const char *const *settings, int n, struct rb_buffer *ret_onnx,
                  struct rb_why *why);

#endif
