/* SPDX-License-Identifier: Apache-2.0 */
/* Fusion: a node is rewritten in place into one that does more, and the nodes that become needless
 * are swept at the end.  The rewritten node is the last of the merged nodes, so the order holds. */
#include "graph/train.h"

#include <math.h>
#include <string.h>

struct fuse {
    struct rb_graph *graph;
    int *uses; /* rb_graph_count_uses */
};

static void rewrite(struct fuse *fuse, struct rb_node *node, enum rb_op op, int n_in,
                    struct rb_value *const *in)
{
    node->op = op;
    node->in = rb_arena_copy(&fuse->graph->arena, in, sizeof(*in) * (size_t)n_in);
    node->n_in = n_in;
    node->attributes = NULL;
    node->n_attributes = 0;
}

static void add_attribute(struct fuse *fuse, struct rb_node *node, struct rb_graph_attribute added)
{
    struct rb_arena *arena = &fuse->graph->arena;
    struct rb_graph_attribute *all =
        RB_ARENA_NEW(arena, struct rb_graph_attribute, node->n_attributes + 1);

    if (node->n_attributes)
        memcpy(all, node->attributes, sizeof(*all) * (size_t)node->n_attributes);
    added.ints = rb_arena_copy(arena, added.ints, sizeof(*added.ints) * (size_t)added.n_ints);
    added.floats =
        rb_arena_copy(arena, added.floats, sizeof(*added.floats) * (size_t)added.n_floats);
    all[node->n_attributes++] = added;
    node->attributes = all;
}

static void flip_flag(struct fuse *fuse, struct rb_node *node, const char *key)
{
    int64_t flag = !rb_node_int(node, key, 0);
    struct rb_node kept = *node;

    node->n_attributes = 0;
    node->attributes = NULL;
    for (int i = 0; i < kept.n_attributes; i++)
        if (strcmp(kept.attributes[i].key, key))
            add_attribute(fuse, node, kept.attributes[i]);
    if (flag)
        add_attribute(fuse, node, rb_attr_ints(key, &flag, 1));
}

/* MatMul(a, Transpose(b)) with the last two axes swapped: a flag instead of a copy. */
static void fuse_transpose(struct fuse *fuse, struct rb_node *node)
{
    if (node->op != RB_OP_MATMUL)
        return;
    for (int i = 0; i < 2; i++) {
        const struct rb_node *turn = rb_graph_made_by(node->in[i], RB_OP_TRANSPOSE);
        const struct rb_graph_attribute *perm = turn ? rb_node_attribute(turn, "perm") : NULL;
        bool swaps = perm && perm->n_ints >= 2;

        for (int j = 0; swaps && j < perm->n_ints; j++) {
            int left = perm->n_ints - 1 - j;

            swaps = perm->ints[j] == (left == 0 ? j - 1 : left == 1 ? j + 1 : j);
        }
        if (!swaps)
            continue;
        node->in[i] = turn->in[0];
        flip_flag(fuse, node, i == 0 ? "transA" : "transB");
    }
}

/* Add(MatMul(a, b), row): the row becomes the product's bias. */
static void fuse_bias(struct fuse *fuse, struct rb_node *node)
{
    if (node->op != RB_OP_ADD)
        return;
    for (int i = 0; i < 2; i++) {
        const struct rb_node *product = rb_graph_made_by(node->in[i], RB_OP_MATMUL);
        struct rb_value *row = node->in[1 - i];
        const struct rb_tensor_type *type = &node->out[0]->type;
        struct rb_value *in[3];

        if (!product || fuse->uses[product->out[0]->id] != 1 ||
            (product->n_in > 2 && product->in[2]) || row->type.rank != 1 ||
            type->rank != product->out[0]->type.rank ||
            row->type.dim[0] != product->out[0]->type.dim[type->rank - 1])
            continue;
        in[0] = product->in[0];
        in[1] = product->in[1];
        in[2] = row;
        rewrite(fuse, node, RB_OP_MATMUL, 3, in);
        node->attributes = product->attributes;
        node->n_attributes = product->n_attributes;
        return;
    }
}

static bool is_number(const struct rb_value *value, double number)
{
    return value && value->role == RB_VALUE_CONST && value->type.dtype == RB_F32 && value->data &&
           rb_tensor_elements(&value->type) == 1 &&
           fabs((double)*(const float *)value->data - number) <= 1e-6 * fabs(number);
}

/* The x of 1 + erf(x / sqrt 2), or NULL. */
static struct rb_value *erf_of(const struct rb_value *value)
{
    const struct rb_node *add = rb_graph_made_by(value, RB_OP_ADD), *erf, *inner;

    for (int i = 0; add && i < 2; i++) {
        erf = is_number(add->in[1 - i], 1.0) ? rb_graph_made_by(add->in[i], RB_OP_ERF) : NULL;
        if (!erf)
            continue;
        inner = rb_graph_made_by(erf->in[0], RB_OP_DIV);
        if (inner && is_number(inner->in[1], sqrt(2.0)))
            return inner->in[0];
        inner = rb_graph_made_by(erf->in[0], RB_OP_MUL);
        for (int j = 0; inner && j < 2; j++)
            if (is_number(inner->in[1 - j], sqrt(0.5)))
                return inner->in[j];
    }
    return NULL;
}

/* The factors of a product of products; 4 where there are more than 3. */
static int factors(const struct fuse *fuse, struct rb_value *value, bool first,
                   struct rb_value *ret[3], int n)
{
    const struct rb_node *mul = rb_graph_made_by(value, RB_OP_MUL);

    if (n > 3)
        return n;
    if (mul && (first || fuse->uses[value->id] == 1)) {
        n = factors(fuse, mul->in[0], false, ret, n);
        return factors(fuse, mul->in[1], false, ret, n);
    }
    if (n < 3)
        ret[n] = value;
    return n + 1;
}

/* x 0.5 (1 + erf(x / sqrt 2)), however it is bracketed. */
static void fuse_gelu(struct fuse *fuse, struct rb_node *node)
{
    struct rb_value *f[3];

    if (node->op != RB_OP_MUL || factors(fuse, node->out[0], true, f, 0) != 3)
        return;
    for (int i = 0; i < 3; i++) {
        struct rb_value *x = erf_of(f[i]), *a = f[(i + 1) % 3], *b = f[(i + 2) % 3];

        if (!x || x->type.rank != node->out[0]->type.rank)
            continue;
        if ((a == x && is_number(b, 0.5)) || (b == x && is_number(a, 0.5))) {
            rewrite(fuse, node, RB_OP_GELU, 1, &x);
            return;
        }
    }
}

static bool reduces_last(const struct rb_node *node)
{
    const struct rb_graph_attribute *axes = node ? rb_node_attribute(node, "axes") : NULL;
    const struct rb_tensor_type *x = node ? &node->in[0]->type : NULL;

    return axes && axes->n_ints == 1 && axes->ints[0] == x->rank - 1 &&
           node->out[0]->type.rank == x->rank;
}

/* The epsilon of sqrt(mean(d d) + epsilon) over the last axis; negative for anything else. */
static float deviation_of(const struct rb_value *value, const struct rb_value *d)
{
    const struct rb_node *root = rb_graph_made_by(value, RB_OP_SQRT);
    const struct rb_node *add = root ? rb_graph_made_by(root->in[0], RB_OP_ADD) : NULL;

    for (int i = 0; add && i < 2; i++) {
        const struct rb_node *mean = rb_graph_made_by(add->in[i], RB_OP_REDUCE_MEAN), *square;
        const struct rb_value *eps = add->in[1 - i];

        if (!reduces_last(mean) || eps->role != RB_VALUE_CONST || !eps->data ||
            eps->type.dtype != RB_F32 || rb_tensor_elements(&eps->type) != 1)
            continue;
        square = rb_graph_made_by(mean->in[0], RB_OP_POW);
        if (square && square->in[0] == d && is_number(square->in[1], 2.0))
            return *(const float *)eps->data;
        square = rb_graph_made_by(mean->in[0], RB_OP_MUL);
        if (square && square->in[0] == d && square->in[1] == d)
            return *(const float *)eps->data;
    }
    return -1;
}

/* A row of the normalised axis, known before any node runs. */
static bool is_row(const struct rb_value *value, const struct rb_tensor_type *x)
{
    return value->role == RB_VALUE_WEIGHT && value->type.rank == 1 &&
           value->type.dim[0] == x->dim[x->rank - 1];
}

/* (x - mean) / sqrt(var + epsilon) scale + bias over the last axis, as exporters below opset 17
 * write it. */
static void fuse_layer_norm(struct fuse *fuse, struct rb_node *node)
{
    if (node->op != RB_OP_ADD)
        return;
    for (int i = 0; i < 4; i++) {
        struct rb_value *bias = node->in[1 - i / 2], *scale, *x;
        const struct rb_node *mul = rb_graph_made_by(node->in[i / 2], RB_OP_MUL), *div, *sub, *mean;
        struct rb_graph_attribute attributes[2];
        float epsilon;
        int64_t axis;

        scale = mul ? mul->in[1 - i % 2] : NULL;
        div = mul ? rb_graph_made_by(mul->in[i % 2], RB_OP_DIV) : NULL;
        sub = div ? rb_graph_made_by(div->in[0], RB_OP_SUB) : NULL;
        mean = sub ? rb_graph_made_by(sub->in[1], RB_OP_REDUCE_MEAN) : NULL;
        if (!reduces_last(mean) || mean->in[0] != sub->in[0])
            continue;
        x = sub->in[0];
        epsilon = deviation_of(div->in[1], sub->out[0]);
        if (epsilon < 0 || x->type.dtype != RB_F32 || !is_row(scale, &x->type) ||
            !is_row(bias, &x->type))
            continue;
        axis = x->type.rank - 1;
        attributes[0] = rb_attr_ints("axis", &axis, 1);
        attributes[1] = rb_attr_float("epsilon", &epsilon);
        rewrite(fuse, node, RB_OP_LAYER_NORM, 3, (struct rb_value *[]){x, scale, bias});
        add_attribute(fuse, node, attributes[0]);
        add_attribute(fuse, node, attributes[1]);
        return;
    }
}

/* MaxPool(Relu(x)) is Relu(MaxPool(x)) on a fraction of the elements.  The gradients agree too:
 * where the two choose different elements of a window, none is above 0, and no gradient passes. */
static void fuse_pool(struct fuse *fuse, struct rb_node *node)
{
    struct rb_node *relu =
        node->op == RB_OP_MAX_POOL ? rb_graph_made_by(node->in[0], RB_OP_RELU) : NULL;
    struct rb_node pool = *node;

    if (!relu || fuse->uses[relu->out[0]->id] != 1 || (node->n_out > 1 && node->out[1]))
        return;
    node->op = RB_OP_RELU;
    node->name = relu->name;
    node->attributes = NULL;
    node->n_attributes = 0;
    relu->op = RB_OP_MAX_POOL;
    relu->name = pool.name;
    relu->attributes = pool.attributes;
    relu->n_attributes = pool.n_attributes;
    relu->out[0]->type = node->out[0]->type;
}

int rb_fuse(struct rb_graph *graph, struct rb_why *why)
{
    static void (*const rewrites[])(struct fuse *, struct rb_node *) = {
        fuse_gelu, fuse_layer_norm, fuse_transpose, fuse_bias, fuse_pool};
    struct fuse fuse = {.graph = graph, .uses = RB_ARENA_NEW(&graph->arena, int, graph->n_values)};

    if (graph->n_contributions)
        return rb_why_set(why, RB_EINTERNAL, "fusion comes before the gradient");
    for (size_t i = 0; i < RB_COUNT(rewrites); i++) {
        rb_graph_count_uses(graph, fuse.uses);
        for (int j = 0; j < graph->n_nodes; j++)
            rewrites[i](&fuse, graph->nodes[j]);
        rb_graph_sweep(graph, RB_ARENA_NEW(&graph->arena, bool, graph->n_values));
    }
    return 0;
}
