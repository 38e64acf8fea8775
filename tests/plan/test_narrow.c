/* SPDX-License-Identifier: Apache-2.0 */
/* Precision bf16 in a graph: what must hold wherever values are kept as bfloat16. */
#include "graph/train.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

typedef struct rb_graph *make_fn(int64_t batch, bool train);

static make_fn *const makers[] = {tiny_mlp, tiny_cnn, tiny_gpt, tiny_residual};

static struct rb_graph *make(make_fn *maker, int64_t batch, bool train)
{
    struct rb_graph *graph = maker(batch, train);
    struct rb_why why = {0};

    if (rb_layout(graph, &why) || rb_narrow(graph, &why))
        fail_msg("%s", why.text);
    return graph;
}

static bool is_product(const struct rb_node *node)
{
    return rb_op_info(node->op)->kind == RB_KIND_PRODUCT;
}

static bool is_move(const struct rb_node *node)
{
    return node->op == RB_OP_RESHAPE || rb_op_info(node->op)->kind == RB_KIND_MOVE;
}

/* Products take nothing but bfloat16; beside them only moves and sums take it, and a Relu's
 * gradient, which asks whether the Relu was above 0.  A move keeps its type. */
static void check_readers(const struct rb_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];

        for (int j = 0; j < node->n_in; j++) {
            if (!node->in[j])
                continue;
            if (is_product(node))
                assert_int_equal(node->in[j]->type.dtype, j < 2 ? RB_BF16 : RB_F32);
            else if (!is_move(node) && node->op != RB_OP_REDUCE_SUM &&
                     !(node->op == RB_OP_RELU_GRAD && j == 1))
                assert_int_not_equal(node->in[j]->type.dtype, RB_BF16);
            else if (is_move(node) && j == 0)
                assert_int_equal(node->in[j]->type.dtype, node->out[0]->type.dtype);
        }
    }
}

static void check_ends(const struct rb_graph *graph)
{
    for (int i = 0; i < graph->n_contributions; i++)
        assert_int_equal(graph->contributions[i].value->type.dtype, RB_F32);
    for (int i = 0; i < graph->n_outputs; i++)
        assert_int_equal(graph->outputs[i]->type.dtype, RB_F32);
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->role != RB_VALUE_TEMP)
            assert_int_not_equal(graph->values[i]->type.dtype, RB_BF16);
}

/* A value is made before it is read, and rounded once at most. */
static void check_order(const struct rb_graph *graph)
{
    bool *rounded = calloc((size_t)graph->n_values, sizeof(*rounded));

    tiny_check_order(graph);
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];

        if (node->op != RB_OP_CAST || node->out[0]->type.dtype != RB_BF16)
            continue;
        assert_false(rounded[node->in[0]->id]);
        rounded[node->in[0]->id] = true;
    }
    free(rounded);
}

static void holds_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < RB_COUNT(makers); i++)
        for (int train = 0; train < 2; train++) {
            struct rb_graph *graph = make(makers[i], 2, train);

            check_readers(graph);
            check_ends(graph);
            check_order(graph);
            rb_graph_free(graph);
        }
}

/* Any batch has the same nodes with the same element types, and random nodes under the same ids. */
static void same_at_any_batch(void **state)
{
    (void)state;
    for (size_t i = 0; i < RB_COUNT(makers); i++) {
        struct rb_graph *a = make(makers[i], 2, true), *b = make(makers[i], 5, true);

        assert_int_equal(a->n_nodes, b->n_nodes);
        for (int k = 0; k < a->n_nodes; k++) {
            const struct rb_node *x = a->nodes[k], *y = b->nodes[k];

            assert_int_equal(x->op, y->op);
            assert_int_equal(x->id, y->id);
            for (int j = 0; j < x->n_out; j++)
                if (x->out[j])
                    assert_int_equal(x->out[j]->type.dtype, y->out[j]->type.dtype);
        }
        rb_graph_free(a);
        rb_graph_free(b);
    }
}

static struct rb_value *product(struct tiny *tiny, struct rb_value *a, struct rb_value *b)
{
    return tiny_with(tiny, RB_OP_MATMUL, "product", 2, (struct rb_value *[]){a, b}, NULL, NULL, 0);
}

/* A value that only products read is written rounded, through moves; one that others read too has a
 * rounded copy. */
static void where_rounding_goes(void **state)
{
    const int64_t turn[] = {1, 0};
    struct tiny tiny = tiny_new(2, false);
    struct rb_graph *graph = tiny.graph;
    struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 6));
    struct rb_value *w = tiny_weight(&tiny, "w", TYPE(6, 6), 0, 1);
    struct rb_value *first = product(&tiny, x, w);
    struct rb_value *turned = tiny_with(&tiny, RB_OP_TRANSPOSE, "turn", 1, &first, "perm", turn, 2);
    struct rb_value *second = product(&tiny, w, turned);
    struct rb_value *relu = tiny_one(&tiny, RB_OP_RELU, "relu", second);
    struct rb_value *third = product(&tiny, w, relu);
    struct rb_value *gelu = tiny_one(&tiny, RB_OP_GELU, "gelu", third);
    struct rb_value *last = tiny_two(&tiny, RB_OP_ADD, "add", product(&tiny, w, gelu), gelu);
    struct rb_why why;
    int casts = 0;

    (void)state;
    graph->outputs = &last;
    graph->n_outputs = 1;
    assert_int_equal(rb_narrow(graph, &why), 0);
    assert_int_equal(first->type.dtype, RB_BF16);
    assert_int_equal(turned->type.dtype, RB_BF16);
    assert_int_equal(second->type.dtype, RB_F32); /* a ReLU reads it */
    assert_int_equal(relu->type.dtype, RB_BF16);
    assert_int_equal(third->type.dtype, RB_F32);
    assert_int_equal(gelu->type.dtype, RB_F32); /* a product and a sum read it */
    for (int i = 0; i < graph->n_nodes; i++)
        casts += graph->nodes[i]->op == RB_OP_CAST;
    assert_int_equal(casts, 3); /* x, w, gelu */
    rb_graph_free(graph);
}

/* A Relu's output is rounded if products and its own gradient read it, and no other node. */
static void what_relu_made(void **state)
{
    for (int others = 0; others < 2; others++) {
        struct tiny tiny = tiny_new(2, false);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 6));
        struct rb_value *w = tiny_weight(&tiny, "w", TYPE(6, 6), 0, 1);
        struct rb_value *relu = tiny_one(&tiny, RB_OP_RELU, "relu", product(&tiny, x, w));
        struct rb_value *dy = product(&tiny, relu, w);
        struct rb_value *dx = tiny_two(&tiny, RB_OP_RELU_GRAD, "dx", dy, relu);
        struct rb_value *ends[] = {dx, others ? tiny_one(&tiny, RB_OP_EXP, "exp", relu) : NULL};
        struct rb_why why;

        (void)state;
        tiny.graph->outputs = ends;
        tiny.graph->n_outputs = 1 + others;
        assert_int_equal(rb_narrow(tiny.graph, &why), 0);
        assert_int_equal(relu->type.dtype, others ? RB_F32 : RB_BF16);
        assert_int_equal(dy->type.dtype, RB_F32);
        rb_graph_free(tiny.graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_relu_made),
        cmocka_unit_test(holds_everywhere),
        cmocka_unit_test(same_at_any_batch),
        cmocka_unit_test(where_rounding_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
