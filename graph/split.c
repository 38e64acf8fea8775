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

/* ---- Products --------------------------------------------------------------------------------*/

/* Notes that `parts` read filters first .. end - 1 of `value`. */
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
            rb_split_are_apart(splitting, from->why)
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

/* ---- The whole -------------------------------------------------------------------------------*/

/* The node needs all filters of its inputs. */
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
        trained |= rb_split_is_trained(node->in[i]);
    }
    if (rb_op_info(node->op)->kind == RB_KIND_RANDOM)
        return refuse(splitting, node, "its random numbers are those of a whole layer");
    if (!from && !last)
        return trained || node->op == RB_OP_BATCH_NORM
                   ? refuse(splitting, node, "it has weights, and reads no filters")
                   : 0;
    if (last || !rb_split_follow(splitting, node, from))
        place_last(splitting, node, last ? last : node);
    return 0;
}

/* A reader of a view reads the value that it views, so an activation goes to a part once, in
 * whatever shapes it is read there.  A filter of the input is `times` elements of the view. */
static void share_readers(struct rb_splitting *splitting, const struct rb_node *node, bool back)
{
    const struct rb_split_piece *of, *piece;
    int64_t channels, times;

    if (!rb_split_is_view(splitting, node))
        return;
    piece = rb_split_piece_of(splitting, node->out[0]);
    of = rb_split_piece_of(splitting, node->in[0]);
    channels = node->out[0]->type.dim[1];
    times = rb_split_view_times(node);
    for (int64_t c = 0; piece->readers && c < channels; c++)
        if (back)
            add_readers(splitting, node->in[0], c / times, c / times + 1, piece->readers[c]);
        else
            piece->readers[c] = of->readers[c / times];
}

/* Products are where `how` says; all other nodes follow. */
static int find_pieces(struct rb_splitting *splitting)
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
    graph->own_loss = whole->own_loss;
    splitting.pieces = RB_ARENA_NEW(&whole->arena, struct rb_split_piece, whole->n_values);
    err = find_pieces(&splitting);
    if (!err)
        err = rb_split_emit(&splitting, graph);
    if (err) {
        rb_graph_free(graph);
        return err;
    }
    *ret_graph = graph;
    return 0;
}
