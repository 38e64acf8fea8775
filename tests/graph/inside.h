/* SPDX-License-Identifier: Apache-2.0 */
/* Branches and bodies of loops, for models written by hand. */
#ifndef RB_TESTS_GRAPH_INSIDE_H
#define RB_TESTS_GRAPH_INSIDE_H

#include "graph/models/writer.h"

#include <string.h>

/* Names of a graph's inputs or outputs, separated by spaces. */
static inline Onnx__ValueInfoProto **inside_names(struct rb_writer *w, const char *names,
                                                  size_t *ret_n)
{
    Onnx__ValueInfoProto **all = RB_ARENA_NEW(&w->arena, Onnx__ValueInfoProto *, strlen(names));
    char *rest = rb_arena_string(&w->arena, names), *name;

    while ((name = strsep(&rest, " "))) {
        all[*ret_n] = RB_ARENA_NEW(&w->arena, Onnx__ValueInfoProto, 1);
        onnx__value_info_proto__init(all[*ret_n]);
        all[(*ret_n)++]->name = name;
    }
    return all;
}

/* Nodes from `first` on become the graph of an attribute of the last node. */
static inline void put_inside(struct rb_writer *w, size_t first, const char *key,
                              const char *inputs, const char *outputs)
{
    Onnx__GraphProto *inside = RB_ARENA_NEW(&w->arena, Onnx__GraphProto, 1);
    Onnx__NodeProto *node = w->graph.node[--w->graph.n_node];
    Onnx__AttributeProto *attribute;

    onnx__graph_proto__init(inside);
    inside->n_node = w->graph.n_node - first;
    inside->node = RB_ARENA_NEW(&w->arena, Onnx__NodeProto *, inside->n_node);
    memcpy(inside->node, w->graph.node + first, inside->n_node * sizeof(Onnx__NodeProto *));
    if (inputs)
        inside->input = inside_names(w, inputs, &inside->n_input);
    inside->output = inside_names(w, outputs, &inside->n_output);
    w->graph.node[first] = node;
    w->graph.n_node = first + 1;
    rb_writer_int(w, key, 0);
    attribute = node->attribute[0];
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
    attribute->has_i = 0;
    attribute->g = inside;
}

#endif
