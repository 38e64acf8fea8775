/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of one part: those of the whole graph, on the filters that are here. */
#include "graph/split_inside.h"

#include <string.h>

/* While a part is made. */
struct emit {
    struct rb_splitting *splitting;
    struct rb_graph *graph; /* the part */
    uint32_t mine, last;
    struct rb_value **local;  /* by value: what is here of it; NULL: nothing */
    struct rb_value **spread; /* by value: what is read here of it; NULL: nothing */
    bool *needed;             /* by value: somebody here reads it, of those that are whole */
    int err;                  /* the first error */
};

static const struct rb_split_piece *piece_of(const struct emit *emit, const struct rb_value *value)
{
    return &emit->splitting->pieces[value->id];
}

static struct rb_node *add(struct emit *emit, const struct rb_node *like, enum rb_op op, int n_in,
                           struct rb_value *const *in, int n_attributes,
                           const struct rb_graph_attribute *attributes, unsigned want,
                           const struct rb_tensor_type *given)
{
    struct rb_node *node = NULL;

    if (!emit->err)
        emit->err = rb_graph_node(emit->graph, op, like->name, n_in, in, n_attributes, attributes,
                                  want, given, &node, emit->splitting->why);
    return emit->err ? NULL : node;
}

static struct rb_value *add_one(struct emit *emit, const struct rb_node *like, enum rb_op op,
                                int n_in, struct rb_value *const *in,
                                const struct rb_graph_attribute *attributes, int n_attributes,
                                const struct rb_tensor_type *given)
{
    struct rb_node *node = add(emit, like, op, n_in, in, n_attributes, attributes, 1u, given);

    return node ? node->out[0] : NULL;
}

/* ---- Values of the whole graph ---------------------------------------------------------------*/

/* Elements first .. first + rows * size - 1 of a variable, as rows of it. */
static struct rb_value *take_rows(struct emit *emit, const struct rb_value *variable, int64_t first,
                                  int64_t rows)
{
    struct rb_tensor_type type = variable->type;
    int64_t size = type.dim[0] ? rb_tensor_elements(&type) / type.dim[0] : 0;
    struct rb_value *value;

    type.dim[0] = rows;
    value = rb_graph_value(emit->graph, variable->role, variable->name, &type, NULL);
    value->first = first * size;
    value->frozen = variable->frozen;
    value->momentum = variable->momentum;
    return value;
}

/* A value that is the same everywhere. */
static struct rb_value *whole_of(struct emit *emit, const struct rb_value *value)
{
    struct rb_value *copy;

    if (!value || emit->local[value->id])
        return value ? emit->local[value->id] : NULL;
    copy = rb_graph_value(emit->graph, value->role, value->name, &value->type, value->data);
    copy->frozen = value->frozen;
    emit->local[value->id] = copy;
    return copy;
}

/* What a node that needs all of it reads. */
static struct rb_value *all_of(struct emit *emit, const struct rb_value *value)
{
    return value && piece_of(emit, value)->kind == RB_PIECE_SPLIT ? emit->spread[value->id]
                                                                  : whole_of(emit, value);
}

static void find_needed(struct emit *emit)
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
            piece = piece ? piece : piece_of(emit, node->out[k]);
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

/* ---- Products --------------------------------------------------------------------------------*/

/* The place of filter `at` among those that `part` reads. */
static int64_t place_read(const struct rb_split_piece *piece, uint32_t part, int64_t at)
{
    int64_t n = 0;

    for (int64_t c = 0; c < at; c++)
        n += piece->readers[c] >> part & 1;
    return n;
}

/* Channels first .. end - 1 of what a product reads. */
static struct rb_value *take_channels(struct emit *emit, const struct rb_node *node, int64_t first,
                                      int64_t end)
{
    const struct rb_split_piece *piece = piece_of(emit, node->in[0]);
    struct rb_value *x = all_of(emit, node->in[0]);
    struct rb_tensor_type type;
    int64_t starts[RB_MAX_RANK] = {0}, steps[RB_MAX_RANK];
    struct rb_graph_attribute attributes[2];

    if (emit->err)
        return NULL;
    if (piece->kind == RB_PIECE_SPLIT)
        first = place_read(piece, emit->mine, first), end = place_read(piece, emit->mine, end);
    if (!first && end == x->type.dim[1])
        return x;
    type = x->type;
    type.dim[1] = end - first;
    starts[1] = first;
    for (int i = 0; i < type.rank; i++)
        steps[i] = 1;
    attributes[0] = rb_attr_ints("starts", starts, type.rank);
    attributes[1] = rb_attr_ints("steps", steps, type.rank);
    return add_one(emit, node, RB_OP_SLICE, 1, &x, attributes, 2, &type);
}

/* A run of filters as a product of its own, with `groups` groups. */
static struct rb_value *add_run(struct emit *emit, const struct rb_node *node, int64_t first,
                                int64_t end)
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
    in[1] = take_rows(emit, node->in[1], first, end - first);
    if (node->n_in > 2 && node->in[2])
        in[2] = take_rows(emit, node->in[2], first, end - first);
    return add_one(emit, node, node->op, 3, in, attributes, node->n_attributes, NULL);
}

/* The next run of filters that are here, neighbours taken together where groups allow; false: there
 * is none. */
static bool next_run(const struct emit *emit, const struct rb_split_piece *piece, int64_t size,
                     int *at, int64_t *ret_first, int64_t *ret_end)
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

static struct rb_value *join(struct emit *emit, const struct rb_node *node,
                             struct rb_value **values, int n, int64_t axis)
{
    struct rb_graph_attribute attribute = rb_attr_ints("axis", &axis, 1);

    return n < 2 ? values[0] : add_one(emit, node, RB_OP_CONCAT, n, values, &attribute, 1, NULL);
}

static void add_product(struct emit *emit, const struct rb_node *node)
{
    const struct rb_split_piece *piece = piece_of(emit, node->out[0]);
    int64_t groups = rb_split_groups(node), size = node->out[0]->type.dim[1] / groups, first, end;
    struct rb_value **runs = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, piece->n + 1);
    int n = 0;

    for (int at = 0; next_run(emit, piece, groups > 1 ? size : 0, &at, &first, &end);)
        runs[n++] = add_run(emit, node, first, end);
    if (n && !emit->err)
        emit->local[node->out[0]->id] = join(emit, node, runs, n, 1);
}

/* ---- What follows ----------------------------------------------------------------------------*/

/* The filters of a number a filter that are here. */
static struct rb_value *take_row(struct emit *emit, const struct rb_node *node,
                                 const struct rb_value *row)
{
    const struct rb_split_piece *piece = piece_of(emit, node->out[0]);
    struct rb_value **runs = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, piece->n + 1);
    int64_t first, end;
    int n = 0;

    for (int at = 0; next_run(emit, piece, 0, &at, &first, &end);)
        runs[n++] = take_rows(emit, row, first, end - first);
    return join(emit, node, runs, n, 0);
}

/* `made`, a number a filter that is here, is what keeps `statistic` up to date. */
static void keep_statistic(struct emit *emit, const struct rb_node *node,
                           const struct rb_value *statistic, struct rb_value *made)
{
    const struct rb_split_piece *piece = piece_of(emit, node->out[0]);
    struct rb_tensor_type type = made->type;
    int64_t first, end, place = 0, step = 1;

    if (piece->kind == RB_PIECE_LAST) {
        struct rb_value *all = take_rows(emit, statistic, 0, type.dim[0]);

        all->statistic = true;
        all->update = made;
        return;
    }
    for (int at = 0; next_run(emit, piece, 0, &at, &first, &end); place += end - first) {
        struct rb_value *mine = take_rows(emit, statistic, first, end - first);
        struct rb_graph_attribute cut[] = {rb_attr_ints("starts", &place, 1),
                                           rb_attr_ints("steps", &step, 1)};

        type.dim[0] = end - first;
        mine->statistic = true;
        mine->update = type.dim[0] == made->type.dim[0]
                           ? made
                           : add_one(emit, node, RB_OP_SLICE, 1, &made, cut, 2, &type);
    }
}

static void keep_statistics(struct emit *emit, const struct rb_node *node,
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

/* What is here of an input. */
static struct rb_value *take_input(struct emit *emit, const struct rb_node *node, int i)
{
    const struct rb_value *value = node->in[i];

    if (value && piece_of(emit, value)->kind == RB_PIECE_SPLIT)
        return emit->local[value->id];
    if (value && i && (node->op == RB_OP_BATCH_NORM || node->op == RB_OP_BATCH_NORM_EVAL))
        return take_row(emit, node, value);
    return whole_of(emit, value);
}

static void add_follower(struct emit *emit, const struct rb_node *node)
{
    const struct rb_split_piece *piece = piece_of(emit, node->out[0]);
    struct rb_value **in = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, node->n_in + 1);
    struct rb_tensor_type type = node->out[0]->type;
    struct rb_node *made;
    int n = 0;

    type.dim[1] = rb_split_count(piece, emit->mine);
    if (!type.dim[1])
        return;
    for (int i = 0; i < node->n_in; i++) {
        struct rb_value *value = take_input(emit, node, i);

        if (value || node->op != RB_OP_CONCAT) /* no filters of that one */
            in[n++] = value;
    }
    if (node->op == RB_OP_CONCAT && n == 1) {
        emit->local[node->out[0]->id] = in[0];
        return;
    }
    made = add(emit, node, node->op, n, in, node->n_attributes, node->attributes,
               wanted_outputs(node), &type);
    for (int i = 0; made && i < node->n_out; i++)
        if (node->out[i])
            emit->local[node->out[i]->id] = made->out[i];
    if (made)
        keep_statistics(emit, node, made);
}

/* All of the node, on all of what it reads. */
static void add_whole(struct emit *emit, const struct rb_node *node)
{
    struct rb_value **in = RB_ARENA_NEW(&emit->graph->arena, struct rb_value *, node->n_in + 1);
    struct rb_tensor_type *types =
        RB_ARENA_NEW(&emit->graph->arena, struct rb_tensor_type, node->n_out + 1);
    struct rb_node *made;

    for (int i = 0; i < node->n_in; i++)
        in[i] = all_of(emit, node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i])
            types[i] = node->out[i]->type;
    made = add(emit, node, node->op, node->n_in, in, node->n_attributes, node->attributes,
               wanted_outputs(node), types);
    for (int i = 0; made && i < node->n_out; i++)
        if (node->out[i])
            emit->local[node->out[i]->id] = made->out[i];
    if (made)
        keep_statistics(emit, node, made);
}

/* ---- Spreading -------------------------------------------------------------------------------*/

/* While the runs of a net are written down, three numbers each. */
struct list {
    int64_t *numbers;
    int n;
};

/* One more filter: into the run before, where it is the next of it. */
static void add_filter(struct list *list, bool keeps, int64_t a, int64_t b)
{
    int64_t *next = list->numbers + list->n;

    if (list->n && next[-3] + (keeps ? next[-1] : 0) == a && next[-2] + next[-1] == b) {
        next[-1]++;
        return;
    }
    next[0] = a;
    next[1] = b;
    next[2] = 1;
    list->n += 3;
}

/* By filter, the part that has it. */
static uint32_t *find_owners(struct emit *emit, const struct rb_split_piece *piece, int64_t filters)
{
    uint32_t *owners = RB_ARENA_NEW(&emit->graph->arena, uint32_t, filters + 1);

    for (int i = 0; i < piece->n; i++)
        for (int64_t c = piece->runs[i].first; c < piece->runs[i].end; c++)
            owners[c] = piece->runs[i].part;
    return owners;
}

/* Does every part read just what it has? */
static bool stays_home(const struct rb_split_piece *piece, const uint32_t *owners, int64_t filters)
{
    for (int64_t c = 0; c < filters; c++)
        if (piece->readers[c] != UINT64_C(1) << owners[c])
            return false;
    return true;
}

/* What goes between this part and `other`, in the order of the filters. */
static void list_filters(const struct emit *emit, const struct rb_split_piece *piece,
                         const uint32_t *owners, int64_t filters, uint32_t other,
                         struct list *sends, struct list *receives, struct list *keeps)
{
    uint32_t mine = emit->mine;
    int64_t here = 0, read = 0;

    for (int64_t c = 0; c < filters; c++) {
        bool has = owners[c] == mine, reads = piece->readers[c] >> mine & 1;

        if (has && reads && other == mine)
            add_filter(keeps, true, here, read);
        else if (has && other != mine && piece->readers[c] >> other & 1)
            add_filter(sends, false, other, here);
        else if (reads && !has && owners[c] == other)
            add_filter(receives, false, other, read);
        here += has;
        read += reads;
    }
}

static void add_spread(struct emit *emit, const struct rb_node *node, struct rb_value *value)
{
    const struct rb_split_piece *piece = piece_of(emit, value);
    int64_t filters = value->type.dim[1], net = value->id, read;
    uint32_t *owners = find_owners(emit, piece, filters);
    size_t room = 3 * ((size_t)filters * emit->splitting->how->parts + 2);
    struct list lists[3];
    struct rb_graph_attribute attributes[4];
    struct rb_tensor_type type = value->type;
    struct rb_node *made;

    if (emit->err || stays_home(piece, owners, filters)) {
        emit->spread[value->id] = emit->local[value->id];
        return;
    }
    for (int i = 0; i < 3; i++)
        lists[i] = (struct list){RB_ARENA_NEW(&emit->graph->arena, int64_t, room), 0};
    for (uint32_t other = 0; other < emit->splitting->how->parts; other++)
        list_filters(emit, piece, owners, filters, other, &lists[0], &lists[1], &lists[2]);
    read = place_read(piece, emit->mine, filters);
    if (!read && !emit->local[value->id])
        return;
    type.dim[1] = read;
    attributes[0] = rb_attr_ints("net", &net, 1);
    attributes[1] = rb_attr_ints("sends", lists[0].numbers, lists[0].n);
    attributes[2] = rb_attr_ints("receives", lists[1].numbers, lists[1].n);
    attributes[3] = rb_attr_ints("keeps", lists[2].numbers, lists[2].n);
    made =
        add(emit, node, RB_OP_SPREAD, 1, &emit->local[value->id], 4, attributes, read > 0, &type);
    emit->spread[value->id] = made && read ? made->out[0] : NULL;
}

/* ---- The whole -------------------------------------------------------------------------------*/

static void add_node(struct emit *emit, const struct rb_node *node)
{
    const struct rb_split_piece *piece = NULL;
    bool needed = false;

    for (int i = 0; i < node->n_out; i++) {
        if (!node->out[i])
            continue;
        piece = piece ? piece : piece_of(emit, node->out[i]);
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
        if (node->out[i] && piece_of(emit, node->out[i])->readers)
            add_spread(emit, node, node->out[i]);
}

int rb_split_emit(struct rb_splitting *splitting, struct rb_graph *graph)
{
    const struct rb_graph *whole = splitting->whole;
    struct emit emit = {
        .splitting = splitting,
        .graph = graph,
        .mine = splitting->how->mine,
        .last = splitting->how->parts - 1,
        .local = RB_ARENA_NEW(&graph->arena, struct rb_value *, whole->n_values),
        .spread = RB_ARENA_NEW(&graph->arena, struct rb_value *, whole->n_values),
        .needed = RB_ARENA_NEW(&graph->arena, bool, whole->n_values),
    };

    find_needed(&emit);
    graph->features = whole_of(&emit, whole->features);
    graph->targets = whole_of(&emit, whole->targets);
    for (int i = 0; i < whole->n_values; i++) /* so that inputs have the same slots */
        if (whole->values[i]->role == RB_VALUE_INPUT)
            whole_of(&emit, whole->values[i]);
    for (int i = 0; !emit.err && i < whole->n_nodes; i++)
        add_node(&emit, whole->nodes[i]);
    if (emit.err || emit.mine != emit.last)
        return emit.err;
    graph->loss = whole_of(&emit, whole->loss);
    graph->count = whole_of(&emit, whole->count);
    graph->correct = whole_of(&emit, whole->correct);
    return 0;
}
