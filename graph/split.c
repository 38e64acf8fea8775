/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/split.h"

#include "graph/split_inside.h"

#include <string.h>

static int refuse(const struct rb_splitting *splitting, const struct rb_node *node,
                  const char *text)
{
    return rb_why_set(splitting->why, RB_EUNSUPPORTED,
                      "node '%s' (%s) cannot be split over devices: %s",
                      node->name ? node->name : "", rb_op_info(node->op)->name, text);
}

/* ---- Layers that are put together ------------------------------------------------------------*/

/* Is each filter of the one where that of the other is?  Runs may be cut differently. */
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

/* Are they as many layers of as many filters, with as many elements each? */
static bool same_sources(const struct rb_split_piece *a, const struct rb_split_piece *b)
{
    bool same = a->n_sources == b->n_sources;

    for (int i = 0; same && i < a->n_sources; i++)
        same = a->sources[i].filters == b->sources[i].filters &&
               a->sources[i].times == b->sources[i].times;
    return same;
}

/* Has it a filter for each of the other's, and maybe one number for all places of one? */
static bool same_filters(const struct rb_tensor_type *a, const struct rb_tensor_type *b)
{
    return a->rank == b->rank && a->rank > 1 && a->dim[0] == b->dim[0] && a->dim[1] == b->dim[1];
}

static bool is_point(const struct rb_node *node)
{
    return rb_op_info(node->op)->kind == RB_KIND_POINT;
}

/* Does it put layers together element by element, whose filters do not go together or are not in
 * the same places?  Places alone could be the same by chance, and the plan does not know. */
static bool are_apart(const struct rb_splitting *splitting, const struct rb_node *node)
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

/* ---- Products --------------------------------------------------------------------------------*/

/* The parts that have filters of `piece` read these of what they are made of. */
static void add_readers(struct rb_splitting *splitting, const struct rb_value *value, int64_t first,
                        int64_t end, uint64_t parts)
{
    struct rb_split_piece *piece = rb_split_piece_of(splitting, value);

    if (piece->kind != RB_PIECE_SPLIT)
        return;
    if (!piece->readers)
        piece->readers = RB_ARENA_NEW(&splitting->whole->arena, uint64_t, value->type.dim[1]);
    for (int64_t c = first; c < end; c++)
        piece->readers[c] |= parts;
}

static int check_product(const struct rb_splitting *splitting, const struct rb_node *node)
{
    const struct rb_value *x = node->in[0], *w = node->in[1];
    const struct rb_split_piece *from = rb_split_piece_of(splitting, x);

    if (w->role != RB_VALUE_WEIGHT)
        return refuse(splitting, node, "it is no product with a weight");
    if (node->n_in > 2 && node->in[2] && !rb_split_is_variable(node->in[2]))
        return refuse(splitting, node, "its bias is no weight");
    if (from->kind == RB_PIECE_LAST)
        return refuse(
            splitting, from->why,
            are_apart(splitting, from->why)
                ? "it puts filters of several layers together, one by one, and they are "
                  "not on the same devices"
                : "it needs all filters of a layer, and others are made of what it makes");
    if (from->kind == RB_PIECE_ROW)
        return refuse(splitting, node, "it reads a statistic");
    if (node->op == RB_OP_MATMUL &&
        (x->type.rank != 2 || w->type.rank != 2 || rb_node_int(node, "transA", 0) ||
         !rb_node_int(node, "transB", 0)))
        return refuse(splitting, node,
                      "its neurons are no rows of its weight; Gemm with transB=1 on samples by "
                      "channels has them so");
    return 0;
}

/* A run for each part of a group. */
static int check_layer(const struct rb_splitting *splitting, const struct rb_node *node,
                       const struct rb_split_layer *layer)
{
    int64_t at = 0, filters = node->out[0]->type.dim[1], groups = rb_split_groups(node);
    int64_t size = filters / groups;

    for (int i = 0; i < layer->n; i++) {
        const struct rb_split_run *run = &layer->runs[i];
        bool whole_groups = run->first % size == 0 && run->end % size == 0;

        if (run->first != at || run->end <= at || run->part >= splitting->how->parts ||
            (!whole_groups && run->first / size != (run->end - 1) / size))
            break;
        at = run->end;
    }
    return at == filters ? 0
                         : rb_why_set(splitting->why, RB_EINTERNAL,
                                      "node '%s': its filters are not where they should be",
                                      node->name ? node->name : "");
}

static int place_product(struct rb_splitting *splitting, const struct rb_node *node)
{
    const struct rb_split *how = splitting->how;
    struct rb_split_piece *piece = rb_split_piece_of(splitting, node->out[0]);
    int64_t groups = rb_split_groups(node), size = node->out[0]->type.dim[1] / groups;
    int64_t channels = node->in[0]->type.dim[1] / groups;
    int err = check_product(splitting, node);

    if (err)
        return err;
    if (splitting->next_layer == how->n_layers)
        return rb_why_set(splitting->why, RB_EINTERNAL, "there are more products than layers");
    err = check_layer(splitting, node, &how->layers[splitting->next_layer]);
    if (err)
        return err;
    piece->kind = RB_PIECE_SPLIT;
    piece->sources = RB_ARENA_NEW(&splitting->whole->arena, struct rb_split_source, 1);
    piece->sources[0] = (struct rb_split_source){node->out[0]->type.dim[1], 1};
    piece->n_sources = 1;
    piece->runs = how->layers[splitting->next_layer].runs;
    piece->n = how->layers[splitting->next_layer++].n;
    for (int i = 0; i < piece->n; i++) {
        const struct rb_split_run *run = &piece->runs[i];

        add_readers(splitting, node->in[0], run->first / size * channels,
                    ((run->end - 1) / size + 1) * channels, UINT64_C(1) << run->part);
    }
    return 0;
}

/* ---- What follows filters one by one ---------------------------------------------------------*/

static bool is_trained(const struct rb_value *value)
{
    return value->role == RB_VALUE_WEIGHT && !value->frozen;
}

/* Inputs of an elementwise node: activations whose filters are in the same places, and numbers
 * that nobody trains: each part would add to the gradient of one. */
static bool point_follows(const struct rb_splitting *splitting, const struct rb_node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct rb_value *value = node->in[i];

        if (!value)
            continue;
        if (rb_split_piece_of(splitting, value)->kind == RB_PIECE_SPLIT
                ? !same_filters(&value->type, &node->out[0]->type)
                : rb_tensor_elements(&value->type) != 1 || is_trained(value))
            return false;
    }
    return !are_apart(splitting, node);
}

/* Sums over axes behind that of the filters. */
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

/* How many elements of axis 1 a filter becomes, where a view leaves filters one behind the other;
 * 0: it does not. */
static int64_t view_follows(const struct rb_node *node)
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

/* Filters of several layers behind each other; false: of something else too. */
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

/* ---- The whole -------------------------------------------------------------------------------*/

/* It needs all that it reads of the filters. */
static void place_last(struct rb_splitting *splitting, const struct rb_node *node,
                       const struct rb_node *why)
{
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] && rb_split_piece_of(splitting, node->in[i])->kind == RB_PIECE_SPLIT)
            add_readers(splitting, node->in[i], 0, node->in[i]->type.dim[1],
                        UINT64_C(1) << (splitting->how->parts - 1));
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i])
            *rb_split_piece_of(splitting, node->out[i]) =
                (struct rb_split_piece){.kind = RB_PIECE_LAST, .why = why};
}

static int place_other(struct rb_splitting *splitting, const struct rb_node *node)
{
    const struct rb_split_piece *from = NULL;
    const struct rb_node *last = NULL;
    bool trained = false;

    for (int i = 0; i < node->n_in; i++) {
        const struct rb_split_piece *piece =
            node->in[i] ? rb_split_piece_of(splitting, node->in[i]) : NULL;

        if (!piece)
            continue;
        if (piece->kind == RB_PIECE_ROW)
            return refuse(splitting, node, "it reads a statistic");
        if (piece->kind == RB_PIECE_SPLIT && !from)
            from = piece;
        if (piece->kind == RB_PIECE_LAST && !last)
            last = piece->why;
        trained |= is_trained(node->in[i]);
    }
    if (node->op == RB_OP_DROPOUT)
        return refuse(splitting, node, "its random numbers are those of a whole layer");
    if (!from && !last)
        return trained || node->op == RB_OP_BATCH_NORM
                   ? refuse(splitting, node, "it has weights, and reads no filters")
                   : 0;
    if (!last && view_follows(node))
        place_like(splitting, node, from, view_follows(node));
    else if (!last && follows(splitting, node))
        place_like(splitting, node, from, 1);
    else if (last || !concat_follows(splitting, node))
        place_last(splitting, node, last ? last : node);
    return 0;
}

/* Who reads a view reads what that is of: so an activation goes to a part once, in whatever shapes
 * it is read there.  A filter of the input is `times` elements of the view. */
static void share_readers(struct rb_splitting *splitting, const struct rb_node *node, bool back)
{
    const struct rb_split_piece *of, *piece;
    int64_t channels, times;

    if (!rb_split_is_view(splitting, node))
        return;
    piece = rb_split_piece_of(splitting, node->out[0]);
    of = rb_split_piece_of(splitting, node->in[0]);
    channels = node->out[0]->type.dim[1];
    times = view_follows(node);
    for (int64_t c = 0; piece->readers && c < channels; c++)
        if (back)
            add_readers(splitting, node->in[0], c / times, c / times + 1, piece->readers[c]);
        else
            piece->readers[c] = of->readers[c / times];
}

int rb_split_find_pieces(struct rb_splitting *splitting)
{
    const struct rb_graph *whole = splitting->whole;
    int err = 0;

    for (int i = 0; !err && i < whole->n_nodes; i++) {
        const struct rb_node *node = whole->nodes[i];
        bool product = node->op == RB_OP_MATMUL || node->op == RB_OP_CONV;

        err = product ? place_product(splitting, node) : place_other(splitting, node);
    }
    for (int i = whole->n_nodes; !err && i-- > 0;)
        share_readers(splitting, whole->nodes[i], true);
    for (int i = 0; !err && i < whole->n_nodes; i++)
        share_readers(splitting, whole->nodes[i], false);
    if (!err && splitting->next_layer != splitting->how->n_layers)
        err = rb_why_set(splitting->why, RB_EINTERNAL, "there are %d products and %d layers",
                         splitting->next_layer, splitting->how->n_layers);
    if (!err && rb_split_piece_of(splitting, whole->loss)->kind != RB_PIECE_LAST)
        err = rb_why_set(splitting->why, RB_EUNSUPPORTED, "the loss depends on no filter");
    return err;
}

int rb_graph_split(struct rb_graph *whole, const struct rb_split *how, struct rb_graph **ret_graph,
                   struct rb_why *why)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_splitting splitting = {.whole = whole, .how = how, .why = why};
    int err;

    graph->whole = whole;
    graph->batch = whole->batch;
    graph->train = whole->train;
    graph->mean_of_means = whole->mean_of_means;
    splitting.pieces = RB_ARENA_NEW(&whole->arena, struct rb_split_piece, whole->n_values);
    err = rb_split_find_pieces(&splitting);
    if (!err)
        err = rb_split_emit(&splitting, graph);
    if (err) {
        rb_graph_free(graph);
        return err;
    }
    *ret_graph = graph;
    return 0;
}
