/* SPDX-License-Identifier: Apache-2.0 */
/* Building a graph by hand and printing it. */
#include "base/buffer.h"
#include "graph/graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
/* cmocka wants the four above */
#include <cmocka.h>

static struct rb_tensor_type f32(int rank, int64_t a, int64_t b)
{
    return (struct rb_tensor_type){.dtype = RB_F32, .rank = rank, .dim = {a, b}};
}

static void text_form(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_tensor_type x_type = f32(2, 4, 64), w_type = f32(2, 128, 64);
    struct rb_value *in[2] = {rb_graph_value(graph, RB_VALUE_INPUT, "x", &x_type, NULL),
                              rb_graph_value(graph, RB_VALUE_WEIGHT, "fc1.weight", &w_type, NULL)};
    struct rb_graph_attribute trans = rb_attr_ints("transB", (int64_t[]){1}, 1);
    struct rb_buffer text = {0};
    struct rb_why why;
    struct rb_node *node;

    assert_int_equal(
        rb_graph_node(graph, RB_OP_MATMUL, "fc1", 2, in, 1, &trans, 1, NULL, &node, &why), 0);
    in[0] = node->out[0];
    in[1] = rb_graph_scalar(graph, 0.5F);
    assert_int_equal(rb_graph_node(graph, RB_OP_MUL, "half", 2, in, 0, NULL, 1, NULL, &node, &why),
                     0);
    graph->outputs = &node->out[0];
    graph->n_outputs = 1;
    rb_graph_print(graph, &text);
    assert_string_equal(text.data, "input in:x : float32[4,64]\n"
                                   "weight w:fc1.weight : float32[128,64]\n"
                                   "%2 = MatMul(in:x, w:fc1.weight) {transB 1} : float32[4,128]\n"
                                   "%4 = Mul(%2, 0.5) : float32[4,128]\n"
                                   "output %4\n");
    rb_buffer_done(&text);
    rb_graph_free(graph);
}

static void unknown_attributes_are_refused(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_tensor_type type = f32(2, 4, 4);
    struct rb_value *in[2] = {rb_graph_value(graph, RB_VALUE_INPUT, "x", &type, NULL)};
    struct rb_graph_attribute trans = rb_attr_ints("trans", (int64_t[]){1}, 1);
    struct rb_why why;

    in[1] = in[0];
    assert_int_equal(rb_graph_node(graph, RB_OP_MATMUL, "m", 2, in, 1, &trans, 1, NULL, NULL, &why),
                     RB_EINTERNAL);
    assert_string_equal(why.text, "MatMul has no attribute 'trans'");
    assert_int_equal(graph->n_nodes, 0);
    rb_graph_free(graph);
}

static void lists_grow(void **state)
{
    struct rb_graph *graph = rb_graph_new();
    struct rb_tensor_type type = f32(1, 3, 0);
    struct rb_value *x = rb_graph_value(graph, RB_VALUE_INPUT, "x", &type, NULL);
    struct rb_node *node;

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(rb_graph_node(graph, RB_OP_NEG, "n", 1, &x, 0, NULL, 1, NULL, &node, NULL),
                         0);
        x = node->out[0];
    }
    assert_int_equal(graph->n_nodes, 1000);
    assert_int_equal(graph->n_values, 1001);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(graph->nodes[i]->id, i);
        assert_ptr_equal(graph->nodes[i]->out[0], graph->values[i + 1]);
    }
    rb_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_form),
        cmocka_unit_test(unknown_attributes_are_refused),
        cmocka_unit_test(lists_grow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
