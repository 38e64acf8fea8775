/* SPDX-License-Identifier: Apache-2.0 */
/* Importing with axes that the file leaves open: the batch, the sequence, the sides of images. */
#include "tests/graph/help.h"

#include <stdint.h>

static void a_fixed_batch_must_match(void **state)
{
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){16, 2});
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    expect_refusal(&w, 4, RB_EINVAL,
                   "input 'x': the model was exported for a batch of 16, not of 4");
    start_writer(&w, 2, (int64_t[]){16, 2});
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    expect_text(&w, 16, "input in:x : float32[16,2]\n%1 = Relu(in:x) : float32[16,2]\noutput %1\n");
    start_writer(&w, 2, (int64_t[]){16, 2});
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    expect_text(&w, 0, "input in:x : float32[16,2]\n%1 = Relu(in:x) : float32[16,2]\noutput %1\n");
}

static void a_symbolic_sequence_must_be_bound(void **state)
{
    struct rb_import_options options = {.batch = 2, .seq_len = 7};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, -1});
    w.graph.input[0]->type->tensor_type->shape->dim[1]->dim_param = (char *)(uintptr_t) "time";
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    assert_int_equal(import_options(&w, &options, &graph, &why), 0);
    assert_int_equal(graph->features->type.dim[0], 2);
    assert_int_equal(graph->features->type.dim[1], 7);
    rb_graph_free(graph);
    expect_refusal(&w, 2, RB_EUNSUPPORTED, "input 'x': axis 1 is symbolic (time)");
}

/* Sides of images come from a sample, whose leading axes of 1 may be left out; an axis that no
 * sample gives has the size for free axes. */
static void symbolic_axes_are_as_long_as_in_a_sample(void **state)
{
    struct rb_tensor_type samples[] = {{RB_F32, 2, {5, 6}}, {RB_F32, 1, {8}}};
    struct rb_import_options options = {.batch = 2, .samples = samples, .n_samples = 2};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    for (int i = 0; i < 3; i++) {
        start_writer(&w, 4, (int64_t[]){-1, i == 1 ? 3 : 1, -1, -1});
        w.graph.input[0]->type->tensor_type->shape->dim[2]->dim_param = (char *)(uintptr_t) "high";
        w.graph.input[0]->type->tensor_type->shape->dim[3]->dim_param = (char *)(uintptr_t) "wide";
        rb_writer_input(&w, "z", RB_F32, 2, (int64_t[]){-1, -1});
        w.graph.input[1]->type->tensor_type->shape->dim[1]->dim_param = (char *)(uintptr_t) "deep";
        rb_writer_node(&w, "Relu", "y", "x", NULL);
        if (i == 2)
            options = (struct rb_import_options){.batch = 2, .free_size = 9};
        if (i == 1) {
            assert_int_equal(import_options(&w, &options, &graph, &why), RB_EUNSUPPORTED);
            assert_non_null(strstr(why.text, "input 'x': axis 2 is symbolic (high)"));
            rb_writer_done(&w);
            continue;
        }
        if (import_options(&w, &options, &graph, &why))
            fail_msg("%s", why.text);
        assert_int_equal(graph->features->type.dim[2], i ? 9 : 5);
        assert_int_equal(graph->features->type.dim[3], i ? 9 : 6);
        for (int k = 0; k < graph->n_values; k++)
            if (graph->values[k]->role == RB_VALUE_INPUT && graph->values[k] != graph->features)
                assert_int_equal(graph->values[k]->type.dim[1], i ? 9 : 8);
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fixed_batch_must_match),
        cmocka_unit_test(a_symbolic_sequence_must_be_bound),
        cmocka_unit_test(symbolic_axes_are_as_long_as_in_a_sample),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
