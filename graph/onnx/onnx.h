/* SPDX-License-Identifier: Apache-2.0 */
/* Reading ONNX: from an untrusted file to a graph.
 *
 * model.onnx > [onnx] (depth pre-scan, capped unpack) > [import] > graph
 *
 * protobuf-c recurses without a limit and can grow a small file 77-fold, so the wire format is
 * walked first (64 nested messages) and unpacked under a cap. */
#ifndef RB_GRAPH_ONNX_ONNX_H
#define RB_GRAPH_ONNX_ONNX_H

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

/* A tensor from a file of its own, the form in which the ONNX backend tests keep their data. */
struct rb_onnx_sample {
    struct rb_tensor_type type;
    const void *data;
};

/* Read a serialised TensorProto; the contents are `arena`'s. */
int rb_onnx_sample_read(const char *path, struct rb_arena *arena, struct rb_onnx_sample *ret_sample,
                        struct rb_why *why);

/* The number of inputs that are no initializers. */
int rb_onnx_inputs(const struct rb_onnx *model);
/* Element type that the model declares for an input or an output; RB_NONE: it is no tensor. */
enum rb_dtype rb_onnx_declared_input(const struct rb_onnx *model, int i);
enum rb_dtype rb_onnx_declared_output(const struct rb_onnx *model, int i);
int rb_onnx_outputs(const struct rb_onnx *model);
/* The whole type of an input; dim -1: an axis without a size of its own. */
int rb_onnx_input_declared(const struct rb_onnx *model, int i, struct rb_tensor_type *ret_type,
                           struct rb_why *why);
/* The next axis without a size of its own that is not the first of its input; begin with input 0,
 * axis 0. */
bool rb_onnx_next_free(const struct rb_onnx *model, int *input, int *axis);
/* The different lengths of the axes of initializers, in the order found; returns how many there
 * are, `most` at most. */
int rb_onnx_lengths(const struct rb_onnx *model, int64_t *ret_lengths, int most);
const char *rb_onnx_input_name(const struct rb_onnx *model, int i);
/* The output's name in the file: the graph's value may have the name of the node that makes it. */
const char *rb_onnx_output_name(const struct rb_onnx *model, int i);
/* The operator of node i of the graph itself; rb_onnx_info has the number of nodes. */
const char *rb_onnx_node_op(const struct rb_onnx *model, int i);

struct rb_import_options {
    int64_t batch; /* bound to the symbolic first axis; 0: the model has its own */
    /* A symbolic axis behind the first is as long as in a sample of its input, else (the second
     * axis) seq_len, else free_size. */
    const struct rb_tensor_type *samples; /* one of each input, without the batch; dtype RB_NONE:
                                             not known */
    const bool *named; /* by input: the data have it by its name (graph.h); NULL: none */
    int n_samples;
    bool from_data;  /* inputs of integers and truth values are int64, cast where they enter */
    int64_t seq_len; /* 0: not known; likewise below */
    int64_t free_size;
    bool train;                /* BatchNormalization and Dropout act as in training */
    const char *const *freeze; /* globs over weight names */
    int n_freeze;
    const char *const *buffers; /* globs over weight names: never trained */
    int n_buffers;
    /* One for each input (NULL: none): types as given, whatever the model declares.  Contents that
     * import requires (a shape, axes) are taken from here and become part of the graph; with
     * `know_integers` so are those of all inputs that are not floats. */
    const struct rb_onnx_sample *given;
    bool know_integers;
};

/* Does each glob match an initializer?  A glob that matches none is a typing mistake: the message
 * names it and some of the existing names. */
int rb_onnx_check_globs(const struct rb_onnx *model, const char *const *globs, int n,
                        struct rb_why *why);

/* Import, infer shapes and fold constants (graph/fold.c).  The message names the first node that
 * cannot be imported: "node 'conv1' (Conv, opset 13): ...". */
int rb_onnx_import(const struct rb_onnx *model, const struct rb_import_options *options,
                   struct rb_graph **ret_graph, struct rb_why *why);

/* Text from a file in a form fit for a message: short, whole characters of UTF-8, no control
 * characters. */
const char *rb_onnx_quote(const char *text, char room[80]);
/* Does the model come from an exporter of PyTorch? */
bool rb_onnx_is_of_pytorch(const struct rb_onnx *model);
/* "onnx::MatMul_123", "342": a name that the exporter made up for a value that it computed. */
bool rb_onnx_made_up(const char *name);
/* "/norm/Constant_1_output_0", or a made-up name of one number: a Constant node of PyTorch's
 * exporter that a simplifier has made an initializer. */
bool rb_onnx_was_constant(const char *name, int rank);

#endif
