/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of splitting a graph: for split*.c alone.
 *
 * split: where each value goes, whatever the part > split_follow: of nodes other than products
 *   > split_emit: the nodes of one part > [split_spread: between parts]
 *   > split_values: the values of this part */
#ifndef RB_GRAPH_SPLIT_INSIDE_H
#define RB_GRAPH_SPLIT_INSIDE_H

#include "graph/split.h"

/* A layer whose filters a value has, each of `times` elements of axis 1. */
struct rb_split_source {
    int64_t filters, times;
};

/* Where a value goes. */
struct rb_split_piece {
    enum {
        RB_PIECE_WHOLE, /* depends on no filter: in each part that reads it */
        RB_PIECE_SPLIT, /* each part has its filters of it, along axis 1 */
        RB_PIECE_LAST,  /* needs all filters: in the last part alone */
        RB_PIECE_ROW,   /* a number a filter, beside the activation: for statistics alone */
    } kind;
    const struct rb_node *why; /* LAST: the node that needs all filters */
    struct rb_split_run *runs; /* SPLIT */
    int n;
    struct rb_split_source *sources; /* SPLIT */
    int n_sources;
    uint64_t *readers; /* SPLIT: by filter, the parts whose products read it; NULL: none do */
};

struct rb_splitting {
    struct rb_graph *whole;
    const struct rb_split *how;
    struct rb_why *why;
    struct rb_split_piece *pieces; /* by id of a value */
    int next_layer;
};

static inline struct rb_split_piece *rb_split_piece_of(const struct rb_splitting *splitting,
                                                       const struct rb_value *value)
{
    return &splitting->pieces[value->id];
}

/* The nodes of one part. */
int rb_split_emit(struct rb_splitting *splitting, struct rb_graph *graph);

/* Groups of a product. */
static inline int64_t rb_split_groups(const struct rb_node *node)
{
    return node->op == RB_OP_CONV ? rb_node_int(node, "group", 1) : 1;
}

/* Filters of a piece that a part has. */
static inline int64_t rb_split_count(const struct rb_split_piece *piece, uint32_t part)
{
    int64_t n = 0;

    for (int i = 0; i < piece->n; i++)
        if (piece->runs[i].part == part)
            n += piece->runs[i].end - piece->runs[i].first;
    return n;
}

/* Does the node give filters another shape, and leave them one after the other? */
static inline bool rb_split_is_view(const struct rb_splitting *splitting,
                                    const struct rb_node *node)
{
    return node->op == RB_OP_RESHAPE &&
           rb_split_piece_of(splitting, node->out[0])->kind == RB_PIECE_SPLIT;
}

static inline bool rb_split_is_variable(const struct rb_value *value)
{
    return value->role == RB_VALUE_WEIGHT || value->role == RB_VALUE_BUFFER;
}

static inline bool rb_split_is_trained(const struct rb_value *value)
{
    return value->role == RB_VALUE_WEIGHT && !value->frozen;
}

/* ---- What follows ----------------------------------------------------------------------------*/

/* Places the node's results where `from`, the first filters that it reads, and all its other
 * filters are.  false: the node needs more than one filter, and has no place. */
bool rb_split_follow(struct rb_splitting *splitting, const struct rb_node *node,
                     const struct rb_split_piece *from);

/* Does the node combine layers element by element whose filters do not go together or are not in
 * the same places?  Places alone could be the same by chance, which the plan would not know. */
bool rb_split_are_apart(const struct rb_splitting *splitting, const struct rb_node *node);

/* How many elements of axis 1 a filter becomes, where a view leaves filters one after the other; 0:
 * the view does not. */
int64_t rb_split_view_times(const struct rb_node *node);

/* ---- One part ---------------------------------------------------------------------------------*/

/* While a part is made. */
struct rb_split_emitting {
    struct rb_splitting *splitting;
    struct rb_graph *graph; /* the part */
    uint32_t mine, last;
    struct rb_value **local;  /* by value: the part of it that is here; NULL: nothing */
    struct rb_value **spread; /* by value: the part of it that is read here; NULL: nothing */
    bool *needed;             /* by value: of whole values, whether a node here reads it */
    int err;                  /* the first error */
};

/* Add a node named as `like`; NULL: there is an error.  add_one returns its output. */
struct rb_node *rb_split_add(struct rb_split_emitting *emit, const struct rb_node *like,
                             enum rb_op op, int n_in, struct rb_value *const *in, int n_attributes,
                             const struct rb_graph_attribute *attributes, unsigned want,
                             const struct rb_tensor_type *given);
struct rb_value *rb_split_add_one(struct rb_split_emitting *emit, const struct rb_node *like,
                                  enum rb_op op, int n_in, struct rb_value *const *in,
                                  const struct rb_graph_attribute *attributes, int n_attributes,
                                  const struct rb_tensor_type *given);

/* Rows first .. first + rows - 1 of a variable. */
struct rb_value *rb_split_rows(struct rb_split_emitting *emit, const struct rb_value *variable,
                               int64_t first, int64_t rows);
/* A value that is the same everywhere. */
struct rb_value *rb_split_whole(struct rb_split_emitting *emit, const struct rb_value *value);
/* All of a value, for a node that needs all of it. */
struct rb_value *rb_split_all(struct rb_split_emitting *emit, const struct rb_value *value);

/* The place of filter `at` among the filters that `part` reads. */
int64_t rb_split_place_read(const struct rb_split_piece *piece, uint32_t part, int64_t at);

/* Makes what products here read of a view, from what they read of its input. */
void rb_split_view(struct rb_split_emitting *emit, const struct rb_node *node);

/* Sends `value`, which `node` made, to the parts whose products read it. */
void rb_split_spread(struct rb_split_emitting *emit, const struct rb_node *node,
                     struct rb_value *value);

#endif
