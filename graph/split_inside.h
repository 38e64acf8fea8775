/* SPDX-License-Identifier: Apache-2.0 */
/* What both halves of splitting a graph know of it.
 *
 * split: what becomes of each value, whatever the part > split_emit: the nodes of one part */
#ifndef RB_GRAPH_SPLIT_INSIDE_H
#define RB_GRAPH_SPLIT_INSIDE_H

#include "graph/split.h"

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
    uint64_t *readers; /* SPLIT: by filter, the parts whose products read it; NULL: none do */
};

struct rb_splitting {
    struct rb_graph *whole;
    const struct rb_split *how;
    struct rb_why *why;
    struct rb_split_piece *pieces; /* by id of a value */
    int next_layer;
};

/* Products are where it is said; all else follows. */
int rb_split_find_pieces(struct rb_splitting *splitting);

/* The nodes of one part. */
int rb_split_emit(struct rb_splitting *splitting, struct rb_graph *graph);

/* Groups of a product, and the channels that one of them reads of `channels`. */
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

static inline bool rb_split_is_variable(const struct rb_value *value)
{
    return value->role == RB_VALUE_WEIGHT || value->role == RB_VALUE_BUFFER;
}

#endif
