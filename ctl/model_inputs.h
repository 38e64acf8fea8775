/* SPDX-License-Identifier: Apache-2.0 */
/* The .npy files that feed a model's inputs, each by its name, and batches of their samples.
 *
 * model run > [model_inputs] > data/source */
#ifndef RB_CTL_MODEL_INPUTS_H
#define RB_CTL_MODEL_INPUTS_H

#include "graph/onnx/onnx.h"
#include "worker/program/program.h"

struct rb_model_inputs {
    const struct rb_onnx *onnx;
    int n;                         /* inputs of the model, in its order */
    struct rb_source **source;     /* of each */
    struct rb_tensor_type *sample; /* type of one sample of each, without the batch */
    int64_t samples;               /* in every file */
};

/* words: "NAME=FILE", or "FILE" where the model has one input.  An input without a file is an
 * error, and so are files of different numbers of samples. */
int rb_model_inputs_open(const struct rb_onnx *onnx, const char *const *words, int n,
                         struct rb_model_inputs *ret_inputs, struct rb_why *why);
void rb_model_inputs_done(struct rb_model_inputs *inputs);

/* Fill the program's inputs with the samples from `first` on, as many as its batch. */
int rb_model_inputs_read(const struct rb_model_inputs *inputs, const Rb__Program *program,
                         int64_t first, struct rb_program *ready, struct rb_why *why);

#endif
