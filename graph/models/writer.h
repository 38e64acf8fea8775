/* SPDX-License-Identifier: Apache-2.0 */
/* Writing an ONNX graph node by node, for the model generators.
 *
 * models_gpt, models_mlp, models_cnn > [writer] > protobuf
 *
 * Values are known by their names; a node is named after its first output.  All memory is the
 * writer's. */
#ifndef RB_GRAPH_MODELS_WRITER_H
#define RB_GRAPH_MODELS_WRITER_H

#include "base/arena.h"
#include "base/error.h"
#include "onnx.pb-c.h"
#include "proto/dtype.h"

struct rb_buffer;

struct rb_writer {
    struct rb_arena arena;
    Onnx__GraphProto graph;
    uint64_t seed;
    uint64_t bytes; /* of all weights */
};

enum rb_init {
    RB_INIT_ZERO,
    RB_INIT_ONE,
    RB_INIT_UNIFORM, /* within +-scale */
    RB_INIT_NORMAL,  /* standard deviation scale */
};

void rb_writer_init(struct rb_writer *writer, const char *graph_name, uint64_t seed);
void rb_writer_done(struct rb_writer *writer);

/* "blocks.3.ln1": a name in the writer's memory. */
#define RB_WRITER_NAME(writer, ...) rb_arena_format(&(writer)->arena, __VA_ARGS__)

/* A float32 initializer; its random numbers depend on the seed and on how many initializers came
 * before it. */
const char *rb_writer_weight(struct rb_writer *writer, const char *name, int rank,
                             const int64_t *dim, enum rb_init init, double scale);

/* The graph's input or output; a dim of -1 is the symbolic axis "batch". */
void rb_writer_input(struct rb_writer *writer, const char *name, enum rb_dtype dtype, int rank,
                     const int64_t *dim);
void rb_writer_output(struct rb_writer *writer, const char *name, int rank, const int64_t *dim);

/* A node with one output, whose name is returned; the inputs end with NULL. */
const char *rb_writer_node(struct rb_writer *writer, const char *op, const char *output, ...)
    __attribute__((sentinel));

/* Further outputs and attributes of the newest node. */
void rb_writer_extra_output(struct rb_writer *writer, const char *name);
void rb_writer_int(struct rb_writer *writer, const char *key, int64_t value);
void rb_writer_float(struct rb_writer *writer, const char *key, float value);
void rb_writer_ints(struct rb_writer *writer, const char *key, int n, const int64_t *values);

/* Constant nodes. */
const char *rb_writer_constant_ints(struct rb_writer *writer, const char *name, int n,
                                    const int64_t *values);
const char *rb_writer_constant_float(struct rb_writer *writer, const char *name, float value);

/* x or Dropout(x): nothing is written for a ratio of 0. */
const char *rb_writer_dropout(struct rb_writer *writer, const char *output, const char *x,
                              double ratio);

/* The finished model; RB_ELIMIT where it would be too large for one protobuf. */
int rb_writer_finish(struct rb_writer *writer, struct rb_buffer *ret_onnx, struct rb_why *why);

#endif
