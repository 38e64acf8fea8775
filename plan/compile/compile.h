/* SPDX-License-Identifier: Apache-2.0 */
/* From a job file to the Model that workers run: everything that decides bits, decided once.
 *
 * Spec + model.onnx + data headers > [compile] > Model (programs, variables, blocks) + initial
 * weights
 *
 * Pure but for reading the files that the spec names. */
#ifndef RB_PLAN_COMPILE_COMPILE_H
#define RB_PLAN_COMPILE_COMPILE_H

#include "base/buffer.h"
#include "base/error.h"
#include "plan.pb-c.h"
#include "spec.pb-c.h"

#include <stdint.h>

struct rb_compiled {
    Rb__Model *model;         /* free with rb__model__free_unpacked */
    struct rb_buffer weights; /* safetensors: TRAINED, STATISTIC and FIXED variables */
    int64_t parameters;       /* trained */
    uint32_t microbatches;    /* of a step: ceil(global batch / micro batch) */
    struct rb_buffer notes;   /* what the author may not expect, a line each: notes.h, and what the
                                 file of weights and the model lack of each other */
    char summary[320];        /* "gpt.onnx: 3.3 M parameters in 53 variables, batch 32 as 8
                                 microbatches of 4" */
};

/* spec: complete (proto/spec.h).  numeric_class: of the devices that will run it.
 * The message says which key of the job file or which node of the model is at fault. */
int rb_compile(const Rb__Spec *spec, const char *numeric_class, struct rb_compiled *ret_compiled,
               struct rb_why *why);
void rb_compiled_done(struct rb_compiled *compiled);

/* A program that trains on `batch` samples, whose graph is changed before it is differentiated:
 * into a part of the whole graph (graph/split.h).  change: takes over *graph, which has its
 * loss. */
struct rb_graph;
struct rb_compile_part {
    int64_t batch;
    uint32_t parts, part;
    int (*change)(struct rb_graph **graph, const void *owner, struct rb_why *why);
    const void *owner;
};

/* Append the programs of the parts to the model of a compiled job. */
int rb_compile_parts(const Rb__Spec *spec, const char *numeric_class,
                     const struct rb_compile_part *parts, size_t n, Rb__Model *model,
                     struct rb_why *why);

/* A model alone: one program, as `options` say, without a loss.  weights: as spec.model.weights
 * names them; NULL: those of the model. */
struct rb_onnx;
struct rb_import_options;
int rb_compile_opened(const struct rb_onnx *onnx, const struct rb_import_options *options,
                      const char *weights, struct rb_compiled *ret_compiled, struct rb_why *why);

/* Where there are no data: sizes for the axes that have none of their own.  Sizes that
 * options->batch and options->free_size ask for are kept; else the first of a few sizes that the
 * model takes. */
int rb_compile_bind(const struct rb_onnx *onnx, struct rb_import_options *options,
                    struct rb_why *why);

/* Can the model be trained?  Imports it, bound, for training and differentiates it under a loss
 * that fits its output.  The message names the first input or node that stands in the way, and
 * why. */
int rb_compile_trainable(const struct rb_onnx *onnx, const struct rb_import_options *options,
                         struct rb_why *why);

/* The same, as one program, for `profile`; onnx_path: for the summary. */
int rb_compile_training(const struct rb_onnx *onnx, const char *onnx_path,
                        const struct rb_import_options *options, struct rb_compiled *ret_compiled,
                        struct rb_why *why);

#endif
