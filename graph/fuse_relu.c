/* SPDX-License-Identifier: Apache-2.0 */
/* A Relu behind a product becomes part of the product, where no other node reads the value between
 * them:
 *
 *     MatMul > c > Relu > y        MatMul relu=1 > y
 *
 * The gradient of a Relu reads y, which is still there.  As in graph/fuse_points.c, the last node
 * is rewritten and keeps its id, and operators and readers decide, never sizes. */
#include "graph/train.h"

#include <string.h>

/* The product that may take the Relu; NULL: there is none.  Its result is rounded behind the Relu
 * or not at all. */
static struct rb_node *find_product(const struct rb_node *relu, const int *uses)
{
    const struct rb_value *between = relu->op == RB_OP_RELU ? relu->in[0] : NULL;
    struct rb_node *product = between ? between->maker : NULL;

    if (!product || product->op != RB_OP_MATMUL || rb_node_int(product, "relu", 0) ||
        uses[between->id] != 1 || between->type.dtype != RB_F32)
        return NULL;
    return relu->out[0]->type.dtype == RB_F32 ||
                   relu->out[0]->type.dtype == product->in[0]->type.dtype
               ? product
               : NULL;
}

static void rewrite(struct rb_graph *graph, struct rb_node *relu, const struct rb_node *product)
{
    static const int64_t one = 1;
    struct rb_arena *arena = &graph->arena;
    int n = product->n_attributes;
    struct rb_graph_attribute *all = RB_ARENA_NEW(arena, struct rb_graph_attribute, n + 1);

    if (n)
        memcpy(all, product->attributes, sizeof(*all) * (size_t)n);
    all[n] = rb_attr_ints("relu", rb_arena_copy(arena, &one, sizeof(one)), 1);
    relu->op = RB_OP_MATMUL;
    relu->in = product->in;
    relu->n_in = product->n_in;
    relu->attributes = all;
    relu->n_attributes = n + 1;
}

void rb_fuse_relu(struct rb_graph *graph)
{
    int *uses = RB_ARENA_NEW(&graph->arena, int, graph->n_values), kept = 0;

    rb_graph_count_uses(graph, uses);
    for (int i = 0; i < graph->n_nodes; i++) {
        struct rb_node *product = find_product(graph->nodes[i], uses);

        if (!product)
            continue;
        rewrite(graph, graph->nodes[i], product);
        product->n_out = 0;
    }
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->n_out)
            graph->nodes[kept++] = graph->nodes[i];
    graph->n_nodes = kept;
}
