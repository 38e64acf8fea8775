/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of struct rb_onnx, for code that looks into the file itself.
 *
 * read, wire_scan > [model] > graph/import, advice, hints */
#ifndef RB_GRAPH_ONNX_MODEL_H
#define RB_GRAPH_ONNX_MODEL_H

#include "graph/names.h"
#include "graph/onnx/onnx.h"
#include "onnx.pb-c.h"
#include "proto/capped_alloc.h"

/* A function of the model's own: exporters write one where they have no operator. */
struct rb_onnx_function {
    const Onnx__FunctionProto *proto;
    char *key;                       /* domain, name and overload */
    Onnx__AttributeProto **defaults; /* of attributes that a call may leave out */
    size_t n_defaults;
    int64_t opset; /* of its nodes */
};

struct rb_onnx {
    int references; /* the opener's, and one for every graph that borrows initial contents */
    struct rb_capped_alloc capped;
    Onnx__ModelProto *proto;      /* has a graph */
    char *folder;                 /* where external data lies; NULL: the model came as bytes */
    int64_t opset;                /* of the default domain */
    struct rb_names initializers; /* name -> Onnx__TensorProto */
    struct rb_names external;     /* name -> contents, of initializers that lie in other files */
    const Onnx__ValueInfoProto **inputs; /* inputs that are no initializers */
    int n_inputs;
    struct rb_onnx_function *functions;
    size_t n_functions;
    struct rb_names functions_by_key; /* -> struct rb_onnx_function */
    char *signature;                  /* the exporter's list of what the module has; NULL: none */
    struct rb_names kinds;            /* of the signature: a tensor's name -> enum rb_onnx_kind */
    struct rb_names arguments;        /* of the signature: a name in nodes -> the tensor's */
    struct rb_names changed;          /* of the signature: buffers that the module changes */
};

enum { RB_ONNX_DEPTH = 64 }; /* the most nested messages */

/* RB_EUNSUPPORTED, with advice, where the operators of this version are not known. */
int rb_onnx_check_opset(int64_t opset, struct rb_why *why);

/* The payload of unknown field i; NULL: it has another tag.  Files may be newer than the schema of
 * libonnx 1.12; what they say beyond the schema is read from the fields that unpacking left
 * over. */
const uint8_t *rb_onnx_newer_field(const ProtobufCMessage *message, unsigned i, unsigned tag,
                                   size_t *ret_size);

/* torch.export's signature, which the exporter behind dynamo=True leaves in the file. */
enum rb_onnx_kind {
    RB_ONNX_UNMARKED, /* there is no signature */
    RB_ONNX_PARAMETER,
    RB_ONNX_BUFFER,   /* also in a state_dict */
    RB_ONNX_CONSTANT, /* of the module's code, or made by the exporter */
};
void rb_onnx_read_signature(struct rb_onnx *model);
enum rb_onnx_kind rb_onnx_kind(const struct rb_onnx *model, const char *name);
/* Counts parameters and buffers that nodes were meant to read and do not, because the exporter has
 * put others in their place.  *ret_example, NULL before: one of them. */
int rb_onnx_lost(const struct rb_onnx *model, const char **ret_example);

/* Was it made from a detach()? */
bool rb_onnx_detaches(const struct rb_onnx *model, const Onnx__NodeProto *node);
/* The row of an embedding that gets no gradient (padding_idx), according to the call that a Gather
 * was made from; -1: none. */
int64_t rb_onnx_padding(const struct rb_onnx *model, const Onnx__NodeProto *node);

int rb_onnx_list_functions(struct rb_onnx *model, struct rb_why *why);
void rb_onnx_functions_done(struct rb_onnx *model);
/* The function that the node calls; NULL: there is none. */
const struct rb_onnx_function *rb_onnx_function(const struct rb_onnx *model,
                                                const Onnx__NodeProto *node);

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
void rb_onnx_external_done(struct rb_onnx *model);

/* Read `size` bytes at `offset` of a regular file; SIZE_MAX: from there to the end.  No symbolic
 * link is followed if `plain`.  *ret_bytes is the caller's to free. */
int rb_onnx_read(int folder, const char *path, bool plain, uint64_t offset, size_t size,
                 uint64_t limit, void **ret_bytes, size_t *ret_size, struct rb_why *why);

#endif
