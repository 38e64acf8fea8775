/* SPDX-License-Identifier: Apache-2.0 */
/* Splitting a graph from inside: for split*.c alone.
 *
 * split: what becomes of each value, whatever the part > split_follow: of what is no product
 *   > split_emit: the nodes of one part > [split_spread: between parts]
 *   > split_values: what is here */
#ifndef RB_GRAPH_SPLIT_INSIDE_H
#define RB_GRAPH_SPLIT_INSIDE_H

#include "graph/split.h"

/* A layer whose filters a value has, so many elements of axis 1 each. */
struct rb_split_source {
    int64_t filters, times;
};

/* What becomes of a value. */
struct rb_split_piece {
    enum {
        RB_PIECE_WHOLE, /* it depends on no filter: wherever it is read */
        RB_PIECE_SPLIT, /* each part has its filters of it, along axis 1 */
        RB_PIECE_LAST,  /* it needs all filters: in the last part alone */
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

/* Of a product. */
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

/* Does it give filters another shape, and leave them one behind the other? */
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

/* Places what a node makes where `from`, the first filters that it reads, and all others are.
 * false: it needs more than one filter, and has no place. */
bool rb_split_follow(struct rb_splitting *splitting, const struct rb_node *node,
                     const struct rb_split_piece *from);

/* Does it put layers together element by element, whose filters do not go together or are not in
 * the same places?  Places alone could be the same by chance, and the plan does not know. */
bool rb_split_are_apart(const struct rb_splitting *splitting, const struct rb_node *node);

/* How many elements of axis 1 a filter becomes, where a view leaves filters one behind the other;
 * 0: it does not. */
int64_t rb_split_view_times(const struct rb_node *node);

/* ---- One part ---------------------------------------------------------------------------------*/

/* While a part is made. */
struct rb_split_emitting {
    struct rb_splitting *splitting;
    struct rb_graph *graph; /* the part */
    uint32_t mine, last;
    struct rb_value **local;  /* by value: what is here of it; NULL: nothing */
    struct rb_value **spread; /* by value: what is read here of it; NULL: nothing */
    bool *needed;             /* by value: somebody here reads it, of those that are whole */
    int err;                  /* the first error */
};

/* A node named as `like`; NULL: there is an error.  add_one: its output. */
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
/* What a node that needs all of it reads. */
struct rb_value *rb_split_all(struct rb_split_emitting *emit, const struct rb_value *value);

/* The place of filter `at` among those that `part` reads. */
int64_t rb_split_place_read(const struct rb_split_piece *piece, uint32_t part, int64_t at);

/* What products here read of a view, out of what they read of its input. */
void rb_split_view(struct rb_split_emitting *emit, const struct rb_node *node);

/* `value`, which `node` made and some part's products read, to where they are. */
void rb_split_spread(struct rb_split_emitting *emit, const struct rb_node *node,
                     struct rb_value *value);

#endif
