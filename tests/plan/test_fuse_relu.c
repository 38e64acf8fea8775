/* SPDX-License-Identifier: Apache-2.0 */
/* A Relu behind a product becomes the product's; where another node reads the value between them it
 * stays.  test_fuse_points.c tests that no bit changes. */
#include "graph/train.h"
#include "tests/plan/tiny.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>

static int count(const struct rb_graph *graph, enum rb_op op)
{
    int n = 0;

    for (int i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i]->op == op;
    return n;
}

static void output(struct tiny *tiny, struct rb_value *value)
{
    tiny->graph->outputs = RB_ARENA_NEW(&tiny->graph->arena, struct rb_value *, 1);
    tiny->graph->outputs[0] = value;
    tiny->graph->n_outputs = 1;
}

/* x w (+ row), with a flag that must stay. */
static struct rb_value *product(struct tiny *tiny, struct rb_value *x, bool bias)
{
    const int64_t one = 1;
    struct rb_value *in[] = {x, tiny_weight(tiny, "w", TYPE(6, 6), 0, 1),
                             bias ? tiny_weight(tiny, "row", TYPE(6), 0, 1) : NULL};

    return tiny_with(tiny, RB_OP_MATMUL, "product", bias ? 3 : 2, in, "transB", &one, 1);
}

/* Twice, the second on the first. */
static void behind_products(void **state)
{
    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = tiny_features(&tiny, RB_F32, TYPE(2, 6)), *y;
        const struct rb_node *last;

        x = tiny_one(&tiny, RB_OP_RELU, "relu", product(&tiny, x, bias));
        y = tiny_one(&tiny, RB_OP_RELU, "relu", product(&tiny, x, bias));
        output(&tiny, y);
        rb_fuse_relu(tiny.graph);
        tiny_check_order(tiny.graph);
        assert_int_equal(tiny.graph->n_nodes, 2);
        last = tiny.graph->nodes[1];
        assert_int_equal(last->op, RB_OP_MATMUL);
        assert_int_equal(last->id, 3); /* the relu's: it keys random numbers */
        assert_ptr_equal(last->out[0], y);
        assert_ptr_equal(last->in[0], x);
        assert_int_equal(last->n_in, bias ? 3 : 2);
        assert_int_equal(rb_node_int(last, "relu", 0), 1);
        assert_int_equal(rb_node_int(last, "transB", 0), 1);
        rb_graph_free(tiny.graph);
    }
}

/* The second Relu of a product no longer follows a product. */
static void only_one(void **state)
{
    struct tiny tiny = tiny_new(2, true);
    struct rb_value *x = product(&tiny, tiny_features(&tiny, RB_F32, TYPE(2, 6)), false);

    (void)state;
    x = tiny_one(&tiny, RB_OP_RELU, "first", x);
    output(&tiny, tiny_one(&tiny, RB_OP_RELU, "second", x));
    rb_fuse_relu(tiny.graph);
    assert_int_equal(count(tiny.graph, RB_OP_RELU), 1);
    assert_int_equal(tiny.graph->nodes[0]->n_attributes, 2);
    rb_graph_free(tiny.graph);
}

static void what_others_read_stays(void **state)
{
    (void)state;
    for (int asked = 0; asked < 2; asked++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = product(&tiny, tiny_features(&tiny, RB_F32, TYPE(2, 6)), true);
        struct rb_value *y = tiny_one(&tiny, RB_OP_RELU, "relu", x);

        if (asked) { /* the product is asked for itself, beside the Relu */
            output(&tiny, y);
            tiny.graph->loss = x;
        } else {
            output(&tiny, tiny_two(&tiny, RB_OP_ADD, "add", x, y));
        }
        rb_fuse_relu(tiny.graph);
        assert_int_equal(count(tiny.graph, RB_OP_RELU), 1);
        assert_int_equal(rb_node_int(x->maker, "relu", 0), 0);
        rb_graph_free(tiny.graph);
    }
}

/* A product of floats does not round. */
static void rounding_is_the_products_own(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 2; rounds++) {
        struct tiny tiny = tiny_new(2, true);
        struct rb_value *x = product(&tiny, tiny_features(&tiny, RB_F32, TYPE(2, 6)), true);
        struct rb_value *y = tiny_one(&tiny, RB_OP_RELU, "relu", x);

        output(&tiny, y);
        y->type.dtype = RB_BF16;
        if (rounds)
            x->maker->in[0]->type.dtype = x->maker->in[1]->type.dtype = RB_BF16;
        rb_fuse_relu(tiny.graph);
        assert_int_equal(count(tiny.graph, RB_OP_RELU), !rounds);
        rb_graph_free(tiny.graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(behind_products),
        cmocka_unit_test(only_one),
        cmocka_unit_test(what_others_read_stays),
        cmocka_unit_test(rounding_is_the_products_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
