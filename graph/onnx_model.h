/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct rb_onnx, for the files that read ONNX; nobody else includes this. */
#ifndef RB_GRAPH_ONNX_MODEL_H
#define RB_GRAPH_ONNX_MODEL_H

#include "graph/names.h"
#include "graph/onnx.h"
#include "onnx.pb-c.h"
#include "proto/capped_alloc.h"

struct rb_onnx {
    int references; /* the opener's, and one for every graph that borrows initial contents */
    struct rb_capped_alloc capped;
    Onnx__ModelProto *proto;      /* has a graph */
    char *folder;                 /* where external data lies; NULL: the model came as bytes */
    int64_t opset;                /* of the default domain */
    struct rb_names initializers; /* name -> Onnx__TensorProto */
    const Onnx__ValueInfoProto **inputs; /* those that no initializer stands for */
    int n_inputs;
};

struct rb_onnx *rb_onnx_borrow(struct rb_onnx *model);

/* An input's element type and dims; -1 where a dim is symbolic or unknown. */
int rb_onnx_input_type(const Onnx__ValueInfoProto *input, struct rb_tensor_type *ret_type,
                       struct rb_why *why);
/* The name of a symbolic dim, "" where there is none. */
const char *rb_onnx_symbol(const Onnx__ValueInfoProto *input, int axis);

/* A tensor's type and contents.  The contents lie in the model where their layout allows, else in
 * `arena`; bytes and shape are checked to agree. */
int rb_onnx_tensor(const struct rb_onnx *model, const Onnx__TensorProto *tensor,
                   struct rb_arena *arena, struct rb_tensor_type *ret_type, const void **ret_data,
                   struct rb_why *why);

/* Read `size` bytes at `offset` of a regular file; SIZE_MAX: from there to the end.  No symbolic
 * link is followed if `plain`.  *ret_bytes is the caller's to free. */
int rb_onnx_read(int folder, const char *path, bool plain, uint64_t offset, size_t size,
                 uint64_t limit, void **ret_bytes, size_t *ret_size, struct rb_why *why);

/* Text from a file as it may stand in a message: short, no control characters. */
const char *rb_onnx_quote(const char *text, char room[80]);

#endif
