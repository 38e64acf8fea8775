/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of one microbatch: values and the nodes that make them, in an order that can be run.
 *
 * model.onnx > import > [graph] > fold, fuse, loss, autodiff > plan
 *
 * Shapes are known: import binds the batch axis.  Operators are those of proto/operators.h, already
 * normalised (axes counted from 0, defaults written out), so no later stage knows ONNX.  All memory
 * is the graph's arena's. */
#ifndef RB_GRAPH_GRAPH_H
#define RB_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "proto/dtype.h"
#include "proto/operators.h"

#include <stdbool.h>
#include <stdint.h>

struct rb_buffer;

enum rb_role {
    RB_VALUE_TEMP,   /* made by a node */
    RB_VALUE_INPUT,  /* given with each microbatch: "features", "targets" */
    RB_VALUE_WEIGHT, /* trained (or frozen, see `frozen`) */
    RB_VALUE_BUFFER, /* from the model, never trained by gradients: running statistics, masks */
    RB_VALUE_CONST,  /* known now; `data` holds it */
};

struct rb_value {
    int id; /* index in graph->values */
    enum rb_role role;
    const char *name;
    struct rb_tensor_type type;
    const void *data;       /* CONST; WEIGHT and BUFFER: initial contents */
    struct rb_node *maker;  /* TEMP */
    int output;             /* which of the maker's outputs */
    bool named;             /* INPUT that the data have by its name, beside features and targets */
    enum rb_dtype declared; /* INPUT: the model's own type, where data are int64; or RB_NONE */
    bool frozen;            /* WEIGHT that takes no gradient; BUFFER: statistics that do not move */
    bool no_number;         /* BUFFER only because it has an infinity or a NaN */
    bool frequencies;       /* BUFFER only because nothing but sines and cosines read it */
    int64_t first;          /* WEIGHT, BUFFER of a part: its first element in the whole variable */
    bool statistic;         /* BUFFER that a training BatchNormalization keeps up to date */
    float momentum;         /* statistic: what is kept of the old value */
    struct rb_value *update; /* statistic, in a training graph: the output of the BATCH_NORM node
                                (mean or variance) that keeps it up to date, according to import */
};

struct rb_node {
    int id; /* index in graph->nodes; behind rb_layout it only tells nodes apart */
    enum rb_op op;
    const char *name; /* the ONNX node's, or the forward node's with a suffix */
    int n_in, n_out;
    struct rb_value **in, **out; /* NULL: absent */
    struct rb_graph_attribute *attributes;
    int n_attributes;
};

struct rb_graph_attribute {
    const char *key;
    int64_t *ints;
    int n_ints;
    float *floats;
    int n_floats;
};

/* How a loss that the model makes itself counts samples. */
enum rb_own_loss {
    RB_OWN_LOSS_NONE,  /* the model makes none */
    RB_OWN_LOSS_MEAN,  /* each sample has the same share: it is rewritten to sum and count */
    RB_OWN_LOSS_SUM,   /* the sum of all elements of something */
    RB_OWN_LOSS_OTHER, /* anything else: a quotient of sums, a root */
};

/* The labels of a loss that the model makes itself. */
struct rb_own_labels {
    const struct rb_value *value; /* NULL: there is no such loss */
    int64_t classes;
    bool ignores;
    int64_t ignored;
    const struct rb_value *mean; /* the loss made of them, where it is the mean over all labels that
                                    count, and these count alike; NULL: it is something else */
};

/* What a microbatch contributes to a variable: a gradient (each use of a tied weight is a
 * contribution of its own), or a statistic of the microbatch. */
struct rb_contribution {
    struct rb_value *variable;
    struct rb_value *value;
};

/* One more name of a weight or buffer: exporters write a parameter that a module has under several
 * names, and equal parameters, once, and an Identity for each other name. */
struct rb_alias {
    const char *name;
    const struct rb_value *value;
};

struct rb_onnx;

struct rb_graph {
    struct rb_arena arena;
    struct rb_onnx *model;  /* lends initial contents; given back with the graph */
    struct rb_graph *whole; /* the graph that this one is a part of (graph/split.h) and owns: the
                               loss may be in another part; NULL: this graph is whole */
    int64_t batch;          /* samples */
    bool train;
    int other_floats; /* initializers with axes, of floats other than F32 */
    struct rb_value **values;
    int n_values;
    struct rb_node **nodes; /* in an order that can be run */
    int n_nodes;
    struct rb_value *features, *targets; /* inputs; targets NULL before a loss that needs them */
    struct rb_own_labels own_labels;     /* of the first such loss */
    struct rb_value **outputs;           /* of the model */
    int n_outputs;
    struct rb_alias *aliases;
    int n_aliases;
    /* After rb_loss_attach: */
    struct rb_value *loss, *count, *correct; /* correct may be NULL */
    enum rb_own_loss own_loss;        /* beyond MEAN: a step's is the mean of its microbatches' */
    enum rb_own_loss own_loss_of_all; /* the same where no label is left out */
    /* After rb_autodiff: */
    struct rb_contribution *contributions;
    int n_contributions;
};

struct rb_graph *rb_graph_new(void);
void rb_graph_free(struct rb_graph *graph);

/* Does any node read it? */
bool rb_graph_reads(const struct rb_graph *graph, const struct rb_value *value);

/* The node that makes a value, if its operator is `op`; else NULL, also where `value` is NULL. */
static inline struct rb_node *rb_graph_made_by(const struct rb_value *value, enum rb_op op)
{
    return value && value->maker && value->maker->op == op ? value->maker : NULL;
}

/* ---- Building ----
 * rb_graph_node infers the outputs' types (graph/shapes/shapes.c) and appends; the outputs are
 * TEMP.  A missing optional input is NULL.  want_out: bit i set makes output i, else it is absent.
 */
struct rb_value *rb_graph_value(struct rb_graph *graph, enum rb_role role, const char *name,
                                const struct rb_tensor_type *type, const void *data);
int rb_graph_node(struct rb_graph *graph, enum rb_op op, const char *name, int n_in,
                  struct rb_value *const *in, int n_attributes,
                  const struct rb_graph_attribute *attributes, unsigned want_out,
                  const struct rb_tensor_type *given_type, /* for operators whose output type is
                                                              not in their inputs: RESHAPE, EXPAND,
                                                              CAST, SLICE_GRAD, ...; else NULL */
                  struct rb_node **ret_node, struct rb_why *why);
/* Copy a node onto inputs of the same types: the copy has the node's id, and so its random
 * numbers. */
struct rb_node *rb_graph_copy(struct rb_graph *graph, const struct rb_node *node,
                              struct rb_value *const *in);
struct rb_value *rb_graph_int64s(struct rb_graph *graph, const char *name, const int64_t *data,
                                 int n);
struct rb_value *rb_graph_scalar(struct rb_graph *graph, float x);

/* Drop the nodes that no output, loss or statistic depends on, and number the others anew.
 *
 * ret_live: by value, all false; becomes true for the values that the remaining nodes read and
 * make. */
void rb_graph_sweep(struct rb_graph *graph, bool *ret_live);

/* By value, of n_values: how many nodes read it, plus readers outside the graph. */
void rb_graph_count_uses(const struct rb_graph *graph, int *ret_uses);

/* The forward part ends with the last node that makes a result; the place behind it. */
int rb_graph_forward_end(const struct rb_graph *graph);

/* Nodes that were appended during a walk over the first n move to where they are needed: those from
 * before[i] to before[i + 1] right in front of node i, the others to the end.  before[0] is n, and
 * before[n + 1] the number of nodes.  Ids stay: from here on they are only names. */
void rb_graph_weave(struct rb_graph *graph, int n, const int *before);

/* One attribute, copied into the arena by rb_graph_node. */
struct rb_graph_attribute rb_attr_ints(const char *key, const int64_t *ints, int n);
struct rb_graph_attribute rb_attr_float(const char *key, const float *value);
int64_t rb_node_int(const struct rb_node *node, const char *key, int64_t otherwise);
float rb_node_float(const struct rb_node *node, const char *key, float otherwise);
const struct rb_graph_attribute *rb_node_attribute(const struct rb_node *node, const char *key);

/* The text form: a line a node, "%7 = MatMul(%3, w:fc1.weight) {transB 1} : float32[4,128]". */
void rb_graph_print(const struct rb_graph *graph, struct rb_buffer *out);

#endif
