/* SPDX-License-Identifier: Apache-2.0 */
/* Elementwise operators that follow each other become one (proto/fused.h), where no other node
 * reads the values between them.
 *
 *     a, b > Add > c;  c, d > Mul > e        a, b, d > Fused > e
 *
 * Each chain is found from its last node, which is rewritten and keeps its id; the others go.
 * Every node takes as many of the makers of its inputs as fit, those with most makers of their own
 * first.
 *
 * Operators and readers decide, never sizes: so the forward nodes of the programs of all batch
 * sizes are the same, as stages and cuts require.  An inner node may therefore make fewer elements
 * than the last one; its step is then computed for each element of the last. */
#include "graph/train.h"
#include "proto/fused.h"

#include <string.h>

enum { NEAR = 16 }; /* nodes from the last one back to one it takes: inputs live until then */

struct points {
    struct rb_graph *graph;
    int *uses;  /* rb_graph_count_uses */
    int *place; /* by value: of its maker; -1: none */
    bool *gone; /* by place */
    int end;    /* of the forward part */
};

/* A chain while it grows, from its last step to its first. */
struct chain {
    const struct rb_node *nodes[RB_FUSED_STEPS];
    int places[RB_FUSED_STEPS];
    int n;
    struct rb_value *in[RB_FUSED_INPUTS];
    int n_in;
};

static bool is_real(const struct rb_value *value)
{
    return value->type.dtype == RB_F32 || value->type.dtype == RB_BF16;
}

/* May the node be a step of a chain?  The rounding of weights, once a training step, stays a
 * node. */
static bool is_step(const struct rb_node *node)
{
    int sources = rb_fused_sources(node->op);

    if (sources == 0 || node->n_in != sources || node->n_out != 1)
        return false;
    if (node->op == RB_OP_CAST && node->in[0]->role != RB_VALUE_TEMP)
        return false;
    for (int i = 0; i < node->n_in; i++)
        if (!is_real(node->in[i]) &&
            !(node->in[i]->type.dtype == RB_BOOL &&
              (node->op == RB_OP_CAST || (node->op == RB_OP_WHERE && i == 0))))
            return false;
    return is_real(node->out[0]) || (node->out[0]->type.dtype == RB_BOOL &&
                                     node->op != RB_OP_CAST && node->op != RB_OP_WHERE);
}

static void look_around(struct points *points)
{
    const struct rb_graph *graph = points->graph;

    rb_graph_count_uses(graph, points->uses);
    for (int i = 0; i < graph->n_values; i++)
        points->place[i] = -1;
    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_out; j++)
            if (graph->nodes[i]->out[j])
                points->place[graph->nodes[i]->out[j]->id] = i;
    points->end = rb_graph_forward_end(graph);
}

/* The place of the node that makes `value` and may join the chain that ends with `last`; -1: none.
 * All readers of the value must be in the chain. */
static int maker_within(const struct points *points, const struct chain *chain,
                        const struct rb_value *value, int last)
{
    int place = points->place[value->id], reads = 0;

    if (place < 0 || points->gone[place] || last - place > NEAR ||
        (place < points->end) != (last < points->end) || !is_step(points->graph->nodes[place]))
        return -1;
    for (int k = 0; k < chain->n; k++)
        for (int j = 0; j < chain->nodes[k]->n_in; j++)
            reads += chain->nodes[k]->in[j] == value;
    return reads == points->uses[value->id] ? place : -1;
}

static int find_input(const struct chain *chain, const struct rb_value *value)
{
    for (int i = 0; i < chain->n_in; i++)
        if (chain->in[i] == value)
            return i;
    return -1;
}

/* Put the node at `place` into the chain, in the order of places; `value`, which it makes, is no
 * input any more. */
static bool take(const struct points *points, struct chain *chain, const struct rb_value *value,
                 int place)
{
    struct rb_node *node = points->graph->nodes[place];
    struct chain grown = *chain;
    int at = value ? find_input(chain, value) : -1, k = grown.n;

    if (grown.n == RB_FUSED_STEPS)
        return false;
    if (at >= 0) {
        memmove(&grown.in[at], &grown.in[at + 1],
                sizeof(grown.in[0]) * (size_t)(grown.n_in - at - 1));
        grown.n_in--;
    }
    for (int j = 0; j < node->n_in; j++) {
        if (find_input(&grown, node->in[j]) >= 0)
            continue;
        if (grown.n_in == RB_FUSED_INPUTS)
            return false;
        grown.in[grown.n_in++] = node->in[j];
    }
    for (; k > 0 && grown.places[k - 1] > place; k--) {
        grown.nodes[k] = grown.nodes[k - 1];
        grown.places[k] = grown.places[k - 1];
    }
    grown.nodes[k] = node;
    grown.places[k] = place;
    grown.n++;
    *chain = grown;
    return true;
}

/* Take everything in front of `last` that fits. */
static void grow(const struct points *points, int last, struct chain *chain)
{
    bool grew = true;

    *chain = (struct chain){.n = 0};
    if (!take(points, chain, NULL, last))
        return;
    while (grew) {
        grew = false;
        for (int i = chain->n_in - 1; i >= 0 && !grew; i--) {
            int place = maker_within(points, chain, chain->in[i], last);

            grew = place >= 0 && take(points, chain, chain->in[i], place);
        }
    }
}

static int64_t source_of(const struct chain *chain, const struct rb_value *value)
{
    for (int k = 0; k < chain->n; k++)
        if (chain->nodes[k]->out[0] == value)
            return chain->n_in + k;
    return find_input(chain, value);
}

static void rewrite(struct points *points, struct rb_node *node, const struct chain *chain)
{
    struct rb_arena *arena = &points->graph->arena;
    int64_t *steps = RB_ARENA_NEW(arena, int64_t, chain->n * RB_FUSED_FIELDS), *at = steps;

    for (int k = 0; k < chain->n; k++) {
        const struct rb_node *one = chain->nodes[k];

        *at++ = one->op;
        *at++ = one->out[0]->type.dtype;
        *at++ = rb_node_int(one, "tanh", 0) != 0;
        for (int j = 0; j < RB_FUSED_SOURCES; j++)
            *at++ = j < one->n_in ? source_of(chain, one->in[j]) : -1;
        if (one != node)
            points->gone[chain->places[k]] = true;
    }
    node->op = RB_OP_FUSED;
    node->in = rb_arena_copy(arena, chain->in, sizeof(*chain->in) * (size_t)chain->n_in);
    node->n_in = chain->n_in;
    node->attributes = RB_ARENA_NEW(arena, struct rb_graph_attribute, 1);
    node->attributes[0] = rb_attr_ints("steps", steps, chain->n * RB_FUSED_FIELDS);
    node->n_attributes = 1;
}

void rb_fuse_points(struct rb_graph *graph)
{
    struct points points = {
        .graph = graph,
        .uses = RB_ARENA_NEW(&graph->arena, int, graph->n_values),
        .place = RB_ARENA_NEW(&graph->arena, int, graph->n_values),
        .gone = RB_ARENA_NEW(&graph->arena, bool, graph->n_nodes),
    };
    int kept = 0;

    look_around(&points);
    for (int i = graph->n_nodes - 1; i >= 0; i--) {
        struct chain chain;

        if (points.gone[i] || !is_step(graph->nodes[i]))
            continue;
        grow(&points, i, &chain);
        if (chain.n > 1)
            rewrite(&points, graph->nodes[i], &chain);
    }
    for (int i = 0; i < graph->n_nodes; i++)
        if (!points.gone[i])
            graph->nodes[kept++] = graph->nodes[i];
    graph->n_nodes = kept;
}
