/* SPDX-License-Identifier: Apache-2.0 */
/* A part while it is made: its nodes, and the values of the whole graph that are here. */
#include "graph/split_inside.h"

struct rb_node *rb_split_add(struct rb_split_emitting *emit, const struct rb_node *like,
                             enum rb_op op, int n_in, struct rb_value *const *in, int n_attributes,
                             const struct rb_graph_attribute *attributes, unsigned want,
                             const struct rb_tensor_type *given)
{
    struct rb_node *node = NULL;

    if (!emit->err)
        emit->err = rb_graph_node(emit->graph, op, like->name, n_in, in, n_attributes, attributes,
                                  want, given, &node, emit->splitting->why);
    return emit->err ? NULL : node;
}

struct rb_value *rb_split_add_one(struct rb_split_emitting *emit, const struct rb_node *like,
                                  enum rb_op op, int n_in, struct rb_value *const *in,
                                  const struct rb_graph_attribute *attributes, int n_attributes,
                                  const struct rb_tensor_type *given)
{
    struct rb_node *node =
        rb_split_add(emit, like, op, n_in, in, n_attributes, attributes, 1u, given);

    return node ? node->out[0] : NULL;
}

struct rb_value *rb_split_rows(struct rb_split_emitting *emit, const struct rb_value *variable,
                               int64_t first, int64_t rows)
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

struct rb_value *rb_split_whole(struct rb_split_emitting *emit, const struct rb_value *value)
{
    struct rb_value *copy;

    if (!value || emit->local[value->id])
        return value ? emit->local[value->id] : NULL;
    copy = rb_graph_value(emit->graph, value->role, value->name, &value->type, value->data);
    copy->frozen = value->frozen;
    emit->local[value->id] = copy;
    return copy;
}

struct rb_value *rb_split_all(struct rb_split_emitting *emit, const struct rb_value *value)
{
    return value && rb_split_piece_of(emit->splitting, value)->kind == RB_PIECE_SPLIT
               ? emit->spread[value->id]
               : rb_split_whole(emit, value);
}

int64_t rb_split_place_read(const struct rb_split_piece *piece, uint32_t part, int64_t at)
{
    int64_t n = 0;

    for (int64_t c = 0; c < at; c++)
        n += piece->readers[c] >> part & 1;
    return n;
}
