/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that follow filters one by one, and so are where these are. */
#include "graph/split_inside.h"

#include <string.h>

/* ---- Layers that are put together ------------------------------------------------------------*/

/* Is each filter of `a` in the part of the same filter of `b`?  Runs may be cut differently. */
static bool same_places(const struct rb_split_piece *a, const struct rb_split_piece *b)
{
    int i = 0, j = 0;

    while (i < a->n && j < b->n) {
        int64_t end_a = a->runs[i].end, end_b = b->runs[j].end;

        if (a->runs[i].part != b->runs[j].part)
            return false;
        i += end_a <= end_b;
        j += end_b <= end_a;
    }
    return i == a->n && j == b->n;
}

/* Do both have equally many layers, of equally many filters, with equally many elements each? */
static bool same_sources(const struct rb_split_piece *a, const struct rb_split_piece *b)
{
    bool same = a->n_sources == b->n_sources;

    for (int i = 0; same && i < a->n_sources; i++)
        same = a->sources[i].filters == b->sources[i].filters &&
               a->sources[i].times == b->sources[i].times;
    return same;
}

/* Has `a` a filter for each filter of `b`, perhaps with one number for all places of a filter? */
static bool same_filters(const struct rb_tensor_type *a, const struct rb_tensor_type *b)
{
    return a->rank == b->rank && a->rank > 1 && a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1];
}

static bool is_point(const struct rb_node *node)
{
    return rb_op_info(node->op)->kind == RB_KIND_POINT;
}

bool rb_split_are_apart(const struct rb_splitting *splitting, const struct rb_node *node)
{
    const struct rb_split_piece *first = NULL;

    for (int i = 0; is_point(node) && i < node->n_in; i++) {
        const struct rb_value *value = node->in[i];
        const struct rb_split_piece *piece = value ? rb_split_piece_of(splitting, value) : NULL;

        if (!piece || piece->kind != RB_PIECE_SPLIT ||
            !same_filters(&value->type, &node->out[0]->type))
            continue;
        if (first && (!same_sources(first, piece) || !same_places(first, piece)))
            return true;
        first = first ? first : piece;
    }
    return false;
}

/* ---- What follows filters one by one ---------------------------------------------------------*/

/* Inputs of an elementwise node: activations whose filters are in the same places, and numbers that
 * are not trained, because each part would add to the gradient of a trained one. */
static bool point_follows(const struct rb_splitting *splitting, const struct rb_node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct rb_value *value = node->in[i];

        if (!value)
            continue;
        if (rb_split_piece_of(splitting, value)->kind == RB_PIECE_SPLIT
                ? !same_filters(&value->type, &node->out[0]->type)
                : rb_tensor_elements(&value->type) != 1 || rb_split_is_trained(value))
            return false;
    }
    return !rb_split_are_apart(splitting, node);
}

/* Does it sum over axes behind that of the filters? */
static bool sum_follows(const struct rb_node *node)
{
    const struct rb_graph_attribute *axes = rb_node_attribute(node, "axes");

    for (int i = 0; axes && i < axes->n_ints; i++)
        if (axes->ints[i] < 2)
            return false;
    return axes != NULL;
}

static bool norm_follows(const struct rb_node *node)
{
    for (int i = 1; i < node->n_in; i++)
        if (!node->in[i] || !rb_split_is_variable(node->in[i]) || node->in[i]->type.rank != 1)
            return false;
    return true;
}

static bool follows(const struct rb_splitting *splitting, const struct rb_node *node)
{
    switch (node->op) {
    case RB_OP_MAX_POOL:
    case RB_OP_AVERAGE_POOL:
        return true;
    case RB_OP_BATCH_NORM:
    case RB_OP_BATCH_NORM_EVAL:
        return norm_follows(node);
    case RB_OP_REDUCE_SUM:
    case RB_OP_REDUCE_MEAN:
    case RB_OP_REDUCE_MAX:
        return sum_follows(node);
    default:
        return is_point(node) && point_follows(splitting, node);
    }
}

int64_t rb_split_view_times(const struct rb_node *node)
{
    const struct rb_tensor_type *x = &node->in[0]->type, *y = &node->out[0]->type;
    int64_t inner = 1;

    if (node->op != RB_OP_RESHAPE || x->rank < 2 || y->rank < 2 || x->dim[0] != y->dim[0])
        return 0;
    for (int i = 2; i < x->rank; i++)
        inner *= x->dim[i];
    if (y->dim[1] == x->dim[1])
        return 1;
    return y->rank == 2 && y->dim[1] == x->dim[1] * inner ? inner : 0;
}

static void take_sources(struct rb_splitting *splitting, struct rb_split_piece *piece,
                         const struct rb_split_piece *from, int64_t times)
{
    struct rb_split_source *sources = RB_ARENA_NEW(&splitting->whole->arena, struct rb_split_source,
                                                   piece->n_sources + from->n_sources);

    if (piece->n_sources)
        memcpy(sources, piece->sources, sizeof *sources * (size_t)piece->n_sources);
    for (int i = 0; i < from->n_sources; i++)
        sources[piece->n_sources + i] =
            (struct rb_split_source){from->sources[i].filters, from->sources[i].times * times};
    piece->sources = sources;
    piece->n_sources += from->n_sources;
}

static void take_runs(struct rb_splitting *splitting, struct rb_split_piece *piece,
                      const struct rb_split_piece *from, int64_t times, int64_t offset)
{
    struct rb_split_run *runs =
        RB_ARENA_NEW(&splitting->whole->arena, struct rb_split_run, piece->n + from->n);

    if (piece->n)
        memcpy(runs, piece->runs, sizeof *runs * (size_t)piece->n);
    for (int i = 0; i < from->n; i++)
        runs[piece->n + i] =
            (struct rb_split_run){offset + from->runs[i].first * times,
                                  offset + from->runs[i].end * times, from->runs[i].part};
    piece->kind = RB_PIECE_SPLIT;
    piece->runs = runs;
    piece->n += from->n;
    take_sources(splitting, piece, from, times);
}

/* The filters of several layers one after the other; false: an input is something else. */
static bool concat_follows(struct rb_splitting *splitting, const struct rb_node *node)
{
    int64_t offset = 0;

    if (node->op != RB_OP_CONCAT || rb_node_int(node, "axis", 0) != 1)
        return false;
    for (int i = 0; i < node->n_in; i++)
        if (rb_split_piece_of(splitting, node->in[i])->kind != RB_PIECE_SPLIT)
            return false;
    for (int i = 0; i < node->n_in; i++) {
        take_runs(splitting, rb_split_piece_of(splitting, node->out[0]),
                  rb_split_piece_of(splitting, node->in[i]), 1, offset);
        offset += node->in[i]->type.dim[1];
    }
    return true;
}

static void place_like(struct rb_splitting *splitting, const struct rb_node *node,
                       const struct rb_split_piece *from, int64_t times)
{
    for (int i = 0; i < node->n_out; i++) {
        if (!node->out[i])
            continue;
        if (i > 0 && node->op == RB_OP_BATCH_NORM)
            rb_split_piece_of(splitting, node->out[i])->kind = RB_PIECE_ROW;
        else
            take_runs(splitting, rb_split_piece_of(splitting, node->out[i]), from, times, 0);
    }
}

bool rb_split_follow(struct rb_splitting *splitting, const struct rb_node *node,
                     const struct rb_split_piece *from)
{
    int64_t times = rb_split_view_times(node);

    if (!times && !follows(splitting, node))
        return concat_follows(splitting, node);
    place_like(splitting, node, from, times ? times : 1);
    return true;
}
