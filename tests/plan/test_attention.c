/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as exporters write it becomes one node; what only looks like it stays in parts. */
#include "base/arena.h"
#include "graph/train.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>

enum { BATCH = 2, HEADS = 3, STEPS = 5, EACH = 4 };

/* How a test differs from the plain form. */
struct form {
    bool turned;      /* the keys come turned by the transpose that made heads of them */
    bool scaled_keys; /* and the scale is on both factors */
    bool divides;     /* by a number instead of times one */
    bool adds;        /* the mask is added; else it chooses */
    bool inverted;    /* the mask tells what is hidden */
    bool drops;
    bool looks_ahead; /* the mask hides other keys */
    bool unknown;     /* the mask is not known in advance */
    bool read_twice;  /* another node reads the probabilities */
};

static struct rb_value *number(struct tiny *tiny, float x)
{
    return rb_graph_scalar(tiny->graph, x);
}

static struct rb_value *mask(struct tiny *tiny, const struct form *form)
{
    struct rb_tensor_type type = TYPE(1, 1, STEPS, STEPS);
    float *added = RB_ARENA_NEW(&tiny->graph->arena, float, STEPS *STEPS);
    uint8_t *chosen = RB_ARENA_NEW(&tiny->graph->arena, uint8_t, STEPS * STEPS);
    enum rb_role role = form->unknown ? RB_VALUE_BUFFER : RB_VALUE_CONST;

    for (int i = 0; i < STEPS * STEPS; i++) {
        bool seen = i % STEPS <= i / STEPS + form->looks_ahead;

        added[i] = seen ? 0 : -INFINITY;
        chosen[i] = seen != form->inverted;
    }
    type.dtype = form->adds ? RB_F32 : RB_BOOL;
    return rb_graph_value(tiny->graph, role, "mask", &type,
                          form->adds ? (const void *)added : (const void *)chosen);
}

static struct rb_value *keys(struct tiny *tiny, const struct form *form)
{
    static const int64_t turned[] = {0, 2, 3, 1}, last[] = {0, 1, 3, 2};
    struct rb_value *k;

    if (form->turned) {
        k = tiny_weight(tiny, "k", TYPE(BATCH, STEPS, HEADS, EACH), 0, 1);
        k = tiny_with(tiny, RB_OP_TRANSPOSE, "turned", 1, &k, "perm", turned, 4);
    } else {
        k = tiny_weight(tiny, "k", TYPE(BATCH, HEADS, STEPS, EACH), 0, 1);
        k = tiny_with(tiny, RB_OP_TRANSPOSE, "turned", 1, &k, "perm", last, 4);
    }
    return form->scaled_keys ? tiny_two(tiny, RB_OP_MUL, "ks", k, number(tiny, 0.5f)) : k;
}

static struct rb_value *masked(struct tiny *tiny, const struct form *form, struct rb_value *x)
{
    struct rb_value *hidden = number(tiny, -INFINITY), *known = mask(tiny, form);

    if (form->adds)
        return tiny_two(tiny, RB_OP_ADD, "masked", x, known);
    return tiny_with(tiny, RB_OP_WHERE, "masked", 3,
                     form->inverted ? (struct rb_value *[]){known, hidden, x}
                                    : (struct rb_value *[]){known, x, hidden},
                     NULL, NULL, 0);
}

static void fuse(struct rb_graph *graph)
{
    struct rb_attentions attentions;

    rb_attention_find(graph, &attentions);
    rb_fuse_attention(graph, &attentions);
    rb_attentions_done(&attentions);
}

/* The form, fused as far as it can be. */
static struct tiny build(const struct form *form)
{
    const int64_t axis = 3;
    const float ratio = 0.25f;
    struct tiny tiny = tiny_new(BATCH, true);
    struct rb_graph_attribute drop = rb_attr_float("ratio", &ratio);
    struct rb_value *q, *x, *p;
    struct rb_why why = {{0}};

    tiny_features(&tiny, RB_F32, TYPE(BATCH, 1));
    q = tiny_weight(&tiny, "q", TYPE(BATCH, HEADS, STEPS, EACH), 0, 1);
    if (form->scaled_keys)
        q = tiny_two(&tiny, RB_OP_MUL, "qs", q, number(&tiny, 0.5f));
    x = tiny_two(&tiny, RB_OP_MATMUL, "scores", q, keys(&tiny, form));
    if (!form->scaled_keys)
        x = form->divides ? tiny_two(&tiny, RB_OP_DIV, "scaled", x, number(&tiny, 4))
                          : tiny_two(&tiny, RB_OP_MUL, "scaled", number(&tiny, 0.25f), x);
    x = masked(&tiny, form, x);
    p = x = tiny_with(&tiny, RB_OP_SOFTMAX, "softmax", 1, &x, "axis", &axis, 1);
    if (form->drops)
        x = tiny_node(&tiny, RB_OP_DROPOUT, "drop", 1, NULL, 1, &drop, 1, &x)->out[0];
    x = tiny_two(&tiny, RB_OP_MATMUL, "mixed", x,
                 tiny_weight(&tiny, "v", TYPE(BATCH, HEADS, STEPS, EACH), 0, 1));
    if (form->read_twice)
        x = tiny_two(&tiny, RB_OP_MATMUL, "again", p, x);
    tiny.graph->outputs = RB_ARENA_NEW(&tiny.graph->arena, struct rb_value *, 1);
    tiny.graph->outputs[0] = x;
    tiny.graph->n_outputs = 1;
    if (rb_fuse(tiny.graph, &why))
        fail_msg("%s", why.text);
    fuse(tiny.graph);
    tiny_check_order(tiny.graph);
    return tiny;
}

static const struct rb_node *find(const struct rb_graph *graph, enum rb_op op)
{
    for (int i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i]->op == op)
            return graph->nodes[i];
    return NULL;
}

static void what_exporters_write(void **state)
{
    static const struct form forms[] = {
        {.drops = false},
        {.drops = true},
        {.divides = true, .adds = true},
        {.inverted = true},
        {.turned = true, .drops = true},
        {.turned = true, .scaled_keys = true},
        {.scaled_keys = true, .adds = true},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(forms); i++) {
        struct tiny tiny = build(&forms[i]);
        const struct rb_node *node = find(tiny.graph, RB_OP_ATTENTION);
        const int64_t *k;

        if (!node)
            fail_msg("form %zu is not found", i);
        assert_null(find(tiny.graph, RB_OP_SOFTMAX));
        assert_null(find(tiny.graph, RB_OP_MATMUL));
        assert_int_equal(rb_node_int(node, "causal", 0), 1);
        assert_float_equal(rb_node_float(node, "scale", 0), forms[i].scaled_keys ? 1 : 0.25, 1e-7);
        assert_float_equal(rb_node_float(node, "ratio", 9), forms[i].drops ? 0.25 : 0, 1e-7);
        k = node->in[1]->type.dim;
        assert_true(k[0] == BATCH && k[1] == HEADS && k[2] == STEPS && k[3] == EACH);
        rb_graph_free(tiny.graph);
    }
}

static void what_only_looks_like_it(void **state)
{
    static const struct form forms[] = {
        {.looks_ahead = true}, {.adds = true, .looks_ahead = true}, {.unknown = true},
        {.read_twice = true},  {.read_twice = true, .drops = true},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(forms); i++) {
        struct tiny tiny = build(&forms[i]);

        if (find(tiny.graph, RB_OP_ATTENTION) || !find(tiny.graph, RB_OP_SOFTMAX))
            fail_msg("form %zu is taken for attention", i);
        rb_graph_free(tiny.graph);
    }
}

/* Does fusing pay for a few queries over so many keys, or (causal) for as many queries as keys? */
static bool pays(int64_t keys, bool causal)
{
    static const int64_t last[] = {0, 2, 1}, axis = 2;
    struct tiny tiny = tiny_new(1, true);
    const int64_t queries = causal ? keys : 4;
    struct rb_tensor_type type = {.dtype = RB_BOOL, .rank = 2, .dim = {keys, keys}};
    uint8_t *seen = RB_ARENA_NEW(&tiny.graph->arena, uint8_t, (size_t)(keys * keys));
    struct rb_value *k = tiny_weight(&tiny, "k", TYPE(1, keys, 2), 0, 1), *x;
    bool is;

    for (int64_t i = 0; i < keys * keys; i++)
        seen[i] = i % keys <= i / keys;
    k = tiny_with(&tiny, RB_OP_TRANSPOSE, "turned", 1, &k, "perm", last, 3);
    x = tiny_two(&tiny, RB_OP_MATMUL, "scores", tiny_weight(&tiny, "q", TYPE(1, queries, 2), 0, 1),
                 k);
    if (causal)
        x = tiny_with(
            &tiny, RB_OP_WHERE, "masked", 3,
            (struct rb_value *[]){rb_graph_value(tiny.graph, RB_VALUE_CONST, "mask", &type, seen),
                                  x, number(&tiny, -INFINITY)},
            NULL, NULL, 0);
    x = tiny_with(&tiny, RB_OP_SOFTMAX, "softmax", 1, &x, "axis", &axis, 1);
    x = tiny_two(&tiny, RB_OP_MATMUL, "mixed", x, tiny_weight(&tiny, "v", TYPE(1, keys, 2), 0, 1));
    tiny.graph->outputs = RB_ARENA_NEW(&tiny.graph->arena, struct rb_value *, 1);
    tiny.graph->outputs[0] = x;
    tiny.graph->n_outputs = 1;
    is = rb_attention_pays(tiny.graph);
    assert_null(find(tiny.graph, RB_OP_ATTENTION)); /* nothing was done */
    assert_int_equal(k->type.dim[1], 2);
    fuse(tiny.graph);
    assert_non_null(find(tiny.graph, RB_OP_ATTENTION));
    rb_graph_free(tiny.graph);
    return is;
}

static void where_a_core_gains(void **state)
{
    (void)state;
    assert_false(pays(63, true));
    assert_true(pays(64, true));
    assert_false(pays(511, false));
    assert_true(pays(512, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_exporters_write),
        cmocka_unit_test(what_only_looks_like_it),
        cmocka_unit_test(where_a_core_gains),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
