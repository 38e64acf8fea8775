/* SPDX-License-Identifier: Apache-2.0 */
/* Activations to the parts that read them: which part sends which filters to which. */
#include "graph/split_inside.h"

/* The runs of a net while they are listed, three numbers each. */
struct list {
    int64_t *numbers;
    int n;
};

/* One more filter: it extends the last run where it continues it. */
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
static uint32_t *find_owners(struct rb_split_emitting *emit, const struct rb_split_piece *piece,
                             int64_t filters)
{
    uint32_t *owners = RB_ARENA_NEW(&emit->graph->arena, uint32_t, filters + 1);

    for (int i = 0; i < piece->n; i++)
        for (int64_t c = piece->runs[i].first; c < piece->runs[i].end; c++)
            owners[c] = piece->runs[i].part;
    return owners;
}

/* Does every part read only filters that it has? */
static bool stays_home(const struct rb_split_piece *piece, const uint32_t *owners, int64_t filters)
{
    for (int64_t c = 0; c < filters; c++)
        if (piece->readers[c] != UINT64_C(1) << owners[c])
            return false;
    return true;
}

/* The filters that go between this part and `other`, in order. */
static void list_filters(const struct rb_split_emitting *emit, const struct rb_split_piece *piece,
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

void rb_split_view(struct rb_split_emitting *emit, const struct rb_node *node)
{
    const struct rb_value *value = node->out[0];
    struct rb_value *of = emit->spread[node->in[0]->id];
    struct rb_tensor_type type = value->type;

    if (of == emit->local[node->in[0]->id]) {
        emit->spread[value->id] = emit->local[value->id];
        return;
    }
    type.dim[1] = rb_split_place_read(rb_split_piece_of(emit->splitting, value), emit->mine,
                                      value->type.dim[1]);
    if (of)
        emit->spread[value->id] = rb_split_add_one(emit, node, node->op, 1, &of, node->attributes,
                                                   node->n_attributes, &type);
}

void rb_split_spread(struct rb_split_emitting *emit, const struct rb_node *node,
                     struct rb_value *value)
{
    const struct rb_split_piece *piece = rb_split_piece_of(emit->splitting, value);
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
    read = rb_split_place_read(piece, emit->mine, filters);
    if (!read && !emit->local[value->id])
        return;
    type.dim[1] = read;
    attributes[0] = rb_attr_ints("net", &net, 1);
    attributes[1] = rb_attr_ints("sends", lists[0].numbers, lists[0].n);
    attributes[2] = rb_attr_ints("receives", lists[1].numbers, lists[1].n);
    attributes[3] = rb_attr_ints("keeps", lists[2].numbers, lists[2].n);
    made = rb_split_add(emit, node, RB_OP_SPREAD, 1, &emit->local[value->id], 4, attributes,
                        read > 0, &type);
    emit->spread[value->id] = made && read ? made->out[0] : NULL;
}
