/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as exporters leave it, in one node that never makes the scores:
 *
 *     MatMul(q, k') > Mul or Div by a number > Where or Add of a mask > Softmax > Dropout >
 * MatMul(., v)
 *
 * A mask must be known here, or hide the keys behind each query and nothing else; other attention
 * stays in parts.  As in graph/fuse.c, the last node is rewritten, the others are swept. */
#include "graph/train.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDEST = 128 }; /* a query, key or value: kernels keep some rows of them at hand */

/* From LEAST_CAUSAL keys on a core is quicker where half of them are hidden.  From LEAST keys on it
 * fuses in any case: it is about as quick, and the scores would take most of the memory. */
enum { LEAST_CAUSAL = 64, LEAST = 512 };

struct found {
    struct rb_value *q, *k, *v;
    float scale, ratio;
    bool causal;
    bool turned; /* the keys */
};

static int uses_of(const struct rb_graph *graph, const struct rb_value *value)
{
    int uses = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        for (int j = 0; j < graph->nodes[i]->n_in; j++)
            uses += graph->nodes[i]->in[j] == value;
    for (int i = 0; i < graph->n_outputs; i++)
        uses += graph->outputs[i] == value;
    return uses;
}

static bool is_number(const struct rb_value *value, float *ret)
{
    if (!value || value->role != RB_VALUE_CONST || value->type.dtype != RB_F32 || !value->data ||
        rb_tensor_elements(&value->type) != 1)
        return false;
    *ret = *(const float *)value->data;
    return true;
}

static bool hides(float x)
{
    return x <= -1e30F; /* minus infinity, or what exporters write for it */
}

/* Does element i of a known mask, BOOL or numbers to add, let a query see a key?  -1: it is
 * neither. */
static int sees(const struct rb_value *mask, int64_t i)
{
    float x;

    if (mask->type.dtype == RB_BOOL)
        return ((const uint8_t *)mask->data)[i] != 0;
    x = ((const float *)mask->data)[i];
    return x == 0 ? 1 : hides(x) ? 0 : -1;
}

/* Is it one mask for all matrices, of `n` queries and keys, in which each sees itself and those
 * before it? */
static bool is_causal(const struct rb_value *mask, bool inverted, int64_t n)
{
    const struct rb_tensor_type *type = &mask->type;

    if (mask->role != RB_VALUE_CONST || !mask->data || type->rank < 2 ||
        (type->dtype != RB_BOOL && type->dtype != RB_F32) || type->dim[type->rank - 1] != n ||
        type->dim[type->rank - 2] != n || rb_tensor_elements(type) != n * n)
        return false;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            if (sees(mask, i * n + j) != ((j <= i) != inverted))
                return false;
    return true;
}

/* The scores to which a mask that hides later keys was applied; NULL: there is no such mask. */
static struct rb_value *below_mask(struct rb_value *scores)
{
    const struct rb_node *where = rb_graph_made_by(scores, RB_OP_WHERE),
                         *add = rb_graph_made_by(scores, RB_OP_ADD);
    const struct rb_tensor_type *type = &scores->type;
    int64_t n = type->dim[type->rank - 1];
    float number;

    if (type->rank < 2 || type->dim[type->rank - 2] != n)
        return NULL;
    for (int i = 0; where && i < 2; i++)
        if (is_number(where->in[2 - i], &number) && hides(number) &&
            where->in[0]->type.dtype == RB_BOOL && is_causal(where->in[0], i, n))
            return where->in[1 + i];
    for (int i = 0; add && i < 2; i++)
        if (add->in[1 - i]->type.dtype == RB_F32 && is_causal(add->in[1 - i], false, n))
            return add->in[i];
    return NULL;
}

static struct rb_value *below_scale(struct rb_value *scores, float *scale)
{
    const struct rb_node *mul = rb_graph_made_by(scores, RB_OP_MUL),
                         *div = rb_graph_made_by(scores, RB_OP_DIV);
    float number;

    for (int i = 0; mul && i < 2; i++)
        if (is_number(mul->in[1 - i], &number)) {
            *scale *= number;
            return mul->in[i];
        }
    if (!div || !is_number(div->in[1], &number) || number == 0)
        return NULL;
    *scale /= number;
    return div->in[0];
}

/* Is what the mask hides still hidden after the factor, and has the mask left the shape of the
 * scores? */
static bool stays_hidden(const struct rb_value *masked, const struct rb_value *below, float scale)
{
    return scale >= 1e-3F && rb_tensor_same_shape(&masked->type, &below->type);
}

/* Walks from the probabilities to the product that makes the scores; each value in between has one
 * reader. */
static struct rb_node *find_scores(const struct rb_graph *graph, struct rb_value *value,
                                   struct found *found)
{
    const struct rb_node *drop = rb_graph_made_by(value, RB_OP_DROPOUT), *softmax;
    struct rb_value *below;

    if (drop) {
        found->ratio = rb_node_float(drop, "ratio", 0.5F);
        if (uses_of(graph, value) != 1)
            return NULL;
        value = drop->in[0];
    }
    softmax = rb_graph_made_by(value, RB_OP_SOFTMAX);
    if (!softmax || uses_of(graph, value) != 1 ||
        rb_node_int(softmax, "axis", -1) != value->type.rank - 1)
        return NULL;
    for (value = softmax->in[0]; uses_of(graph, value) == 1; value = below) {
        if (rb_graph_made_by(value, RB_OP_MATMUL))
            return value->maker;
        below = found->causal ? NULL : below_mask(value);
        if (below && !stays_hidden(value, below, found->scale))
            return NULL;
        found->causal |= below != NULL;
        below = below ? below : below_scale(value, &found->scale);
        if (!below || below->type.rank != value->type.rank)
            return NULL;
    }
    return NULL;
}

static void swap(int64_t *numbers, int n)
{
    int64_t last = numbers[n - 1];

    numbers[n - 1] = numbers[n - 2];
    numbers[n - 2] = last;
}

/* The keys, turned for the product, before they were multiplied by a number; NULL: they were
 * not. */
static struct rb_value *below_factor(const struct rb_value *k)
{
    const struct rb_node *mul = rb_graph_made_by(k, RB_OP_MUL);
    float number;

    for (int i = 0; mul && i < 2; i++)
        if (is_number(mul->in[1 - i], &number) && mul->in[i]->type.rank == k->type.rank)
            return mul->in[i];
    return NULL;
}

static struct rb_graph_attribute *turn_of(const struct rb_value *k)
{
    const struct rb_node *turn = rb_graph_made_by(k, RB_OP_TRANSPOSE);

    return turn ? (struct rb_graph_attribute *)rb_node_attribute(turn, "perm") : NULL;
}

/* Can the turning of keys for the product be undone?  Yes where a transpose did it, perhaps before
 * factors, and nothing else reads the values in between. */
static bool can_turn_back(const struct rb_graph *graph, const struct rb_value *k)
{
    const struct rb_graph_attribute *perm;

    for (; k; k = below_factor(k)) {
        if (uses_of(graph, k) != 1 || k->type.rank < 2)
            return false;
        perm = turn_of(k);
        if (perm)
            return perm->n_ints == k->type.rank;
    }
    return false;
}

/* The transpose leaves the last two axes alone. */
static void turn_back(struct rb_graph *graph, struct rb_value *k)
{
    struct rb_graph_attribute *perm;

    for (; !turn_of(k); k = below_factor(k))
        swap(k->type.dim, k->type.rank);
    perm = turn_of(k);
    perm->ints =
        rb_arena_copy(&graph->arena, perm->ints, sizeof(*perm->ints) * (size_t)perm->n_ints);
    swap(perm->ints, perm->n_ints);
    swap(k->type.dim, k->type.rank);
}

/* Are the stacks alike, and the rows not too long? */
static bool fit(const struct rb_value *q, const struct rb_value *k, const struct rb_value *v)
{
    int rank = q->type.rank;

    if (rank < 2 || k->type.rank != rank || v->type.rank != rank || q->type.dtype != RB_F32 ||
        k->type.dtype != RB_F32 || v->type.dtype != RB_F32)
        return false;
    for (int i = 0; i < rank - 2; i++)
        if (k->type.dim[i] != q->type.dim[i] || v->type.dim[i] != q->type.dim[i])
            return false;
    return q->type.dim[rank - 1] <= WIDEST && v->type.dim[rank - 1] <= WIDEST;
}

static bool find(const struct rb_graph *graph, const struct rb_node *last, struct found *found)
{
    const struct rb_node *scores;

    *found = (struct found){.scale = 1};
    if (last->op != RB_OP_MATMUL || (last->n_in > 2 && last->in[2]) ||
        rb_node_int(last, "transA", 0) || rb_node_int(last, "transB", 0))
        return false;
    scores = find_scores(graph, last->in[0], found);
    if (!scores || (scores->n_in > 2 && scores->in[2]) || rb_node_int(scores, "transA", 0))
        return false;
    found->q = scores->in[0];
    found->k = scores->in[1];
    found->v = last->in[1];
    if (!fit(found->q, found->k, found->v))
        return false;
    found->turned = !rb_node_int(scores, "transB", 0);
    return !found->turned || can_turn_back(graph, found->k);
}

static void rewrite(struct rb_graph *graph, struct rb_node *node, const struct found *found)
{
    struct rb_arena *arena = &graph->arena;
    struct rb_value *in[3] = {found->q, found->k, found->v};
    float numbers[2] = {found->scale, found->ratio};
    int64_t causal = found->causal;

    if (found->turned)
        turn_back(graph, found->k);
    node->op = RB_OP_ATTENTION;
    node->n_in = 3;
    node->in = rb_arena_copy(arena, in, sizeof(in));
    node->n_attributes = 3;
    node->attributes = RB_ARENA_NEW(arena, struct rb_graph_attribute, 3);
    node->attributes[0] = rb_attr_float("scale", rb_arena_copy(arena, &numbers[0], sizeof(float)));
    node->attributes[1] = rb_attr_float("ratio", rb_arena_copy(arena, &numbers[1], sizeof(float)));
    node->attributes[2] = rb_attr_ints("causal", rb_arena_copy(arena, &causal, sizeof(causal)), 1);
}

bool rb_attention_pays(const struct rb_graph *graph)
{
    struct found found;

    for (int i = 0; i < graph->n_nodes; i++)
        if (find(graph, graph->nodes[i], &found)) {
            const struct rb_tensor_type *v = &found.v->type;

            if (v->dim[v->rank - 2] >= (found.causal ? LEAST_CAUSAL : LEAST))
                return true;
        }
    return false;
}

void rb_attention_find(const struct rb_graph *graph, struct rb_attentions *ret_attentions)
{
    struct rb_attentions all = {0};
    struct found found;

    for (int i = 0; i < graph->n_nodes; i++)
        if (find(graph, graph->nodes[i], &found)) {
            all.place = rb_realloc(all.place, (size_t)(all.n + 1) * sizeof *all.place);
            all.place[all.n++] = i;
        }
    *ret_attentions = all;
}

void rb_attentions_done(struct rb_attentions *attentions)
{
    free(attentions->place);
    *attentions = (struct rb_attentions){0};
}

void rb_fuse_attention(struct rb_graph *graph, const struct rb_attentions *attentions)
{
    struct found found;
    bool any = false;

    for (int i = 0; i < attentions->n && attentions->place[i] < graph->n_nodes; i++) {
        struct rb_node *node = graph->nodes[attentions->place[i]];

        if (find(graph, node, &found)) {
            rewrite(graph, node, &found);
            any = true;
        }
    }
    if (any)
        rb_graph_sweep(graph, RB_ARENA_NEW(&graph->arena, bool, graph->n_values));
}
