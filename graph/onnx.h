/* SPDX-License-Identifier: Apache-2.0 */
/* Reading ONNX: from a file nobody has to trust to a graph.
 *
 * model.onnx > [onnx] (depth pre-scan, capped unpack) > [import] > graph
 *
 * protobuf-c recurses without a limit and can grow a small file 77-fold, so the wire format is
 * walked first (64 nested messages) and unpacked under a cap. */
#ifndef RB_GRAPH_ONNX_H
#define RB_GRAPH_ONNX_H

#include "graph/graph.h"

struct rb_onnx; /* an unpacked ModelProto and the folder it came from */

/* Read and unpack.  At most `limit` bytes of file (0: 2 GiB - 1) and four times that of memory. */
int rb_onnx_open(const char *path, uint64_t limit, struct rb_onnx **ret_model, struct rb_why *why);
int rb_onnx_open_bytes(const void *bytes, size_t size, struct rb_onnx **ret_model,
                       struct rb_why *why);
void rb_onnx_close(struct rb_onnx *model);

/* What the model says of itself, before any batch is bound. */
struct rb_onnx_info {
    int64_t ir_version, opset;
    const char *producer;
    int n_nodes, n_initializers;
    const char *input;                /* the features' name */
    struct rb_tensor_type input_type; /* dim -1: symbolic or unknown */
    int64_t fixed_batch;              /* > 0: the model was exported for this batch only */
};
int rb_onnx_info(const struct rb_onnx *model, struct rb_onnx_info *ret_info, struct rb_why *why);

struct rb_import_options {
    int64_t batch;             /* bound to the symbolic first axis; 0: the model says it itself */
    int64_t seq_len;           /* > 0: bound to a symbolic second axis of the input */
    bool train;                /* BatchNormalization and Dropout act as in training */
    const char *const *freeze; /* globs over weight names */
    int n_freeze;
    const char *const *buffers; /* globs over weight names: never trained */
    int n_buffers;
};

/* Import, infer shapes and fold constants (graph/fold.c).  The message names the first node that
 * cannot be imported: "node 'conv1' (Conv, opset 13): ...". */
int rb_onnx_import(const struct rb_onnx *model, const struct rb_import_options *options,
                   struct rb_graph **ret_graph, struct rb_why *why);

#endif
