/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of one part: the whole graph's nodes, on the filters that are here. */
#include "graph/split_inside.h"

#include <string.h>

/* ---- Products --------------------------------------------------------------------------------*/

/* Channels first .. end - 1 of what a product reads. */
static struct rb_value *take_channels(struct rb_split_emitting *emit, const struct rb_node *node,
                                      int64_t first, int64_t end)
{
    const struct rb_split_piece *piece = rb_split_piece_of(emit->splitting, node->in[0]);
    struct rb_value *x = rb_split_all(emit, node->in[0]);
    struct rb_tensor_type type;
    int64_t starts[RB_MAX_RANK] = {0}, steps[RB_MAX_RANK];
    struct rb_graph_attribute attributes[2];

    if (emit->err)
        return NULL;
    if (piece->kind == RB_PIECE_SPLIT)
        first = rb_split_place_read(piece, emit->mine, first),
        end = rb_split_place_read(piece, emit->mine, end);
    if (!first && end == x->type.dim[1])
        return x;
    type = x->type;
    type.dim[1] = end - first;
    starts[1] = first;
    for (int i = 0; i < type.rank; i++)
        steps[i] = 1;
    attributes[0] = rb_attr_ints("starts", starts, type.rank);
    attributes[1] = rb_attr_ints("steps", steps, type.rank);
    return rb_split_add_one(emit, node, RB_OP_SLICE, 1, &x, attributes, 2, &type);
}

/* A run of filters as a product of its own, with `groups` groups. */
static struct rb_value *add_run(struct rb_split_emitting *emit, const struct rb_node *node,
                                int64_t first, int64_t end)
{
    int64_t all = rb_split_groups(node), size = node->out[0]->type.dim[1] / all;
    int64_t channels = node->in[0]->type.dim[1] / all, group = first / size;
    int64_t groups = (end - 1) / size + 1 - group;
    struct rb_graph_attribute *attributes =
        RB_ARENA_NEW(&emit->graph->arena, struct rb_graph_attribute, node->n_attributes + 1);
    struct rb_value *in[3] = {
        take_channels(emit, node, group * channels, (group + groups) * channels)};

    for (int i = 0; i < node->n_attributes; i++)
        attributes[i] = strcmp(node->attributes[i].key, "group")
                            ? node->attributes[i]
                            : rb_attr_ints("group", &groups, 1);
    in[1] = rb_split_rows(emit, node->in[1], first, end - first);
    if (node->n_in > 2 && node->in[2])
        in[2] = rb_split_rows(emit, node->in[2], first, end - first);
    return rb_split_add_one(emit, node, node->op, 3, in, attributes, node->n_attributes, NULL);
}

/* The next run of filters that are here, neighbours taken together where groups allow; false: there
 * is none. */
static bool next_run(const struct rb_split_emitting *emit, const struct rb_split_piece *piece,
                     int64_t size, int *at, int64_t *ret_first, int64_t *ret_end)
{
    while (*at < piece->n && piece->runs[*at].part != emit->mine)
        ++*at;
    if (*at == piece->n)
        return false;
    *ret_first = piece->runs[*at].first;
    *ret_end = piece->runs[(*at)++].end;
    while (*at < piece->n && piece->runs[*at].part == emit->mine &&
           (!size ||
            (*ret_first % size == 0 && *ret_end % size == 0 && piece->runs[*at].end % size == 0)))
        *ret_end = piece->runs[(*at)++].end;
    return true;
}

static struct rb_value *join(struct rb_split_emitting *emit, const struct rb_node *node,
                             struct rb_value **values, int n, int64_t axis)
{
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &axis, 1);

    return n < 2 ? values[0]
                 : rb_split_add_one(emit, node, RB_OP_CONCAT, n, values, &attribute, 1, NULL);
}

static void add_product(struct rb_split_emitting *emit, const struct rb_node *node)
{
    const struct rb_split_piece *piece = rb_split_piece_of(emit->splitting, node->out[0]);
    int64_t groups = rb_split_groups(node), size = node->out[0]->type.dim[1] / groups, first, end;
    struct rb_value **runs = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, piece->n + 1);
    int n = 0;

    for (int at = 0; next_run(emit, piece, groups > 1 ? size : 0, &at, &first, &end);)
        runs[n++] = add_run(emit, node, first, end);
    if (n && !emit->err)
        emit->local[node->out[0]->id] = join(emit, node, runs, n, 1);
}

/* ---- What follows ----------------------------------------------------------------------------*/

/* The numbers of the filters that are here, of a row with one number a filter. */
static struct rb_value *take_row(struct rb_split_emitting *emit, const struct rb_node *node,
                                 const struct rb_value *row)
{
    const struct rb_split_piece *piece = rb_split_piece_of(emit->splitting, node->out[0]);
    struct rb_value **runs = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, piece->n + 1);
    int64_t first, end;
    int n = 0;

    for (int at = 0; next_run(emit, piece, 0, &at, &first, &end);)
        runs[n++] = rb_split_rows(emit, row, first, end - first);
    return join(emit, node, runs, n, 0);
}

/* `made`, one number for each filter that is here, keeps `statistic` up to date. */
static void keep_statistic(struct rb_split_emitting *emit, const struct rb_node *node,
                           const struct rb_value *statistic, struct rb_value *made)
{
    const struct rb_split_piece *piece = rb_split_piece_of(emit->splitting, node->out[0]);
    struct rb_tensor_type type = made->type;
    int64_t first, end, place = 0, step = 1;

    if (piece->kind == RB_PIECE_LAST) {
        struct rb_value *all = rb_split_rows(emit, statistic, 0, type.dim[0]);

        all->statistic = true;
        all->update = made;
        return;
    }
    for (int at = 0; next_run(emit, piece, 0, &at, &first, &end); place += end - first) {
        struct rb_value *mine = rb_split_rows(emit, statistic, first, end - first);
        struct rb_graph_attribute cut[] = {rb_attr_ints("starts", &place, 1),
                                           rb_attr_ints("steps", &step, 1)};

        type.dim[0] = end - first;
        mine->statistic = true;
        mine->update = type.dim[0] == made->type.dim[0]
                           ? made
                           : rb_split_add_one(emit, node, RB_OP_SLICE, 1, &made, cut, 2, &type);
    }
}

static void keep_statistics(struct rb_split_emitting *emit, const struct rb_node *node,
                            const struct rb_node *made)
{
    const struct rb_graph *whole = emit->splitting->whole;

    for (int i = 0; i < whole->n_values; i++)
        for (int k = 1; whole->values[i]->statistic && k < node->n_out; k++)
            if (node->out[k] && whole->values[i]->update == node->out[k])
                keep_statistic(emit, node, whole->values[i], made->out[k]);
}

static unsigned wanted_outputs(const struct rb_node *node)
{
    unsigned want = 0;

    for (int i = 0; i < node->n_out; i++)
        want |= node->out[i] ? 1u << i : 0;
    return want;
}

/* The part of an input that is here. */
static struct rb_value *take_input(struct rb_split_emitting *emit, const struct rb_node *node,
                                   int i)
{
    const struct rb_value *value = node->in[i];

    if (value && rb_split_piece_of(emit->splitting, value)->kind == RB_PIECE_SPLIT)
        return emit->local[value->id];
    if (value && i && (node->op == RB_OP_BATCH_NORM || node->op == RB_OP_BATCH_NORM_EVAL))
        return take_row(emit, node, value);
    return rb_split_whole(emit, value);
}

static void add_follower(struct rb_split_emitting *emit, const struct rb_node *node)
{
    const struct rb_split_piece *piece = rb_split_piece_of(emit->splitting, node->out[0]);
    struct rb_value **in = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, node->n_in + 1);
    struct rb_tensor_type type = node->out[0]->type;
    struct rb_node *made;
    int n = 0;

    type.dim[1] = rb_split_count(piece, emit->mine);
    if (!type.dim[1])
        return;
    for (int i = 0; i < node->n_in; i++) {
        struct rb_value *value = take_input(emit, node, i);

        if (value || node->op != RB_OP_CONCAT) /* NULL: it has no filters here */
            in[n++] = value;
    }
    if (node->op == RB_OP_CONCAT && n == 1) {
        emit->local[node->out[0]->id] = in[0];
        return;
    }
    made = rb_split_add(emit, node, node->op, n, in, node->n_attributes, node->attributes,
                        wanted_outputs(node), &type);
    for (int i = 0; made && i < node->n_out; i++)
        if (node->out[i])
            emit->local[node->out[i]->id] = made->out[i];
    if (made)
        keep_statistics(emit, node, made);
}

/* The whole node, on the whole of its inputs. */
static void add_whole(struct rb_split_emitting *emit, const struct rb_node *node)
{
    struct rb_value **in = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, node->n_in + 1);
    struct rb_tensor_type *types =
        RB_ARENA_NEW(&emit->graph->arena, struct rb_tensor_type, node->n_out + 1);
    struct rb_node *made;

    for (int i = 0; i < node->n_in; i++)
        in[i] = rb_split_all(emit, node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i])
            types[i] = node->out[i]->type;
    made = rb_split_add(emit, node, node->op, node->n_in, in, node->n_attributes, node->attributes,
                        wanted_outputs(node), types);
    for (int i = 0; made && i < node->n_out; i++)
        if (node->out[i])
            emit->local[node->out[i]->id] = made->out[i];
    if (made)
        keep_statistics(emit, node, made);
}

/* ---- The whole -------------------------------------------------------------------------------*/

static void find_needed(struct rb_split_emitting *emit)
{
    const struct rb_graph *whole = emit->splitting->whole;

    emit->needed[whole->loss->id] = emit->needed[whole->count->id] = emit->mine == emit->last;
    if (whole->correct)
        emit->needed[whole->correct->id] = emit->mine == emit->last;
    for (int i = whole->n_nodes - 1; i >= 0; i--) {
        const struct rb_node *node = whole->nodes[i];
        const struct rb_split_piece *piece = NULL;
        bool here = false;

        for (int k = 0; k < node->n_out; k++) {
            if (!node->out[k])
                continue;
            piece = piece ? piece : rb_split_piece_of(emit->splitting, node->out[k]);
            here |= emit->needed[node->out[k]->id];
        }
        if (piece && piece->kind == RB_PIECE_SPLIT)
            here = rb_split_count(piece, emit->mine) > 0;
        else if (piece && piece->kind == RB_PIECE_LAST)
            here = emit->mine == emit->last;
        for (int k = 0; here && k < node->n_in; k++)
            if (node->in[k])
                emit->needed[node->in[k]->id] = true;
    }
}

static void add_node(struct rb_split_emitting *emit, const struct rb_node *node)
{
    const struct rb_split_piece *piece = NULL;
    bool needed = false;

    for (int i = 0; i < node->n_out; i++) {
        if (!node->out[i])
            continue;
        piece = piece ? piece : rb_split_piece_of(emit->splitting, node->out[i]);
        needed |= emit->needed[node->out[i]->id];
    }
    if (!piece)
        return;
    if (piece->kind == RB_PIECE_LAST ? emit->mine == emit->last
                                     : piece->kind == RB_PIECE_WHOLE && needed)
        add_whole(emit, node);
    else if (piece->kind == RB_PIECE_SPLIT && (node->op == RB_OP_MATMUL || node->op == RB_OP_CONV))
        add_product(emit, node);
    else if (piece->kind == RB_PIECE_SPLIT)
        add_follower(emit, node);
    for (int i = 0; i < node->n_out; i++)
        if (!node->out[i] || !rb_split_piece_of(emit->splitting, node->out[i])->readers)
            continue;
        else if (rb_split_is_view(emit->splitting, node))
            rb_split_view(emit, node);
        else
            rb_split_spread(emit, node, node->out[i]);
}

int rb_split_emit(struct rb_splitting *splitting, struct rb_graph *graph)
{
    const struct rb_graph *whole = splitting->whole;
    struct rb_split_emitting emit = {
        .splitting = splitting,
        .graph = graph,
        .mine = splitting->how->mine,
        .last = splitting->how->parts - 1,
        .local = RB_ARENA_NEW(&graph->arena, struct rb_value *, whole->n_values),
        .spread = RB_ARENA_NEW(&graph->arena, struct rb_value *, whole->n_values),
        .needed = RB_ARENA_NEW(&graph->arena, bool, whole->n_values),
    };

    find_needed(&emit);
    graph->features = rb_split_whole(&emit, whole->features);
    graph->targets = rb_split_whole(&emit, whole->targets);
    for (int i = 0; i < whole->n_values; i++) /* so that inputs have the same slots */
        if (whole->values[i]->role == RB_VALUE_INPUT)
            rb_split_whole(&emit, whole->values[i]);
    for (int i = 0; !emit.err && i < whole->n_nodes; i++)
        add_node(&emit, whole->nodes[i]);
    if (emit.err || emit.mine != emit.last)
        return emit.err;
    graph->loss = rb_split_whole(&emit, whole->loss);
    graph->count = rb_split_whole(&emit, whole->count);
    graph->correct = rb_split_whole(&emit, whole->correct);
    return 0;
}
