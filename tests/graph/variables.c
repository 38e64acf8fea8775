/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: which variables are trained, which stand still, and which nodes exist in training
 * alone. */
#include "graph/hints.h"
#include "graph/models/models.h"
#include "tests/graph/help.h"

static void masks_are_buffers_and_fold(void **state)
{
    struct rb_writer w;
    const char *mask;

    start_writer(&w, 2, (int64_t[]){-1, 2});
    mask = rb_writer_weight(&w, "mask", 1, (int64_t[]){2}, RB_INIT_ZERO, 0);
    mask =
        rb_writer_node(&w, "Equal", "masked", mask, rb_writer_constant_float(&w, "zero", 0), NULL);
    rb_writer_node(&w, "Where", "y", mask, "x",
                   rb_writer_weight(&w, "w", 1, (int64_t[]){2}, RB_INIT_ONE, 0), NULL);
    expect_text(&w, 1,
                "input in:x : float32[1,2]\n"
                "buffer b:mask : float32[2]\n"
                "weight w:w : float32[2]\n"
                "const c:%3 : bool[2]\n"
                "%4 = Where(c:%3, in:x, w:w) : float32[1,2]\n"
                "output %4\n");
}

static void globs(void **state)
{
    const char *const freeze[] = {"a.*"}, *const buffers[] = {"*.table"};
    struct rb_import_options options = {.batch = 1,
                                        .train = true,
                                        .freeze = freeze,
                                        .n_freeze = 1,
                                        .buffers = buffers,
                                        .n_buffers = 1};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    const char *x;
    char *text;

    start_writer(&w, 2, (int64_t[]){-1, 2});
    x = rb_writer_node(&w, "Mul", "p", "x",
                       rb_writer_weight(&w, "a.weight", 1, (int64_t[]){2}, RB_INIT_ONE, 0), NULL);
    x = rb_writer_node(&w, "Mul", "q", x,
                       rb_writer_weight(&w, "b.table", 1, (int64_t[]){2}, RB_INIT_ONE, 0), NULL);
    rb_writer_node(&w, "Mul", "y", x,
                   rb_writer_weight(&w, "b.weight", 1, (int64_t[]){2}, RB_INIT_ONE, 0), NULL);
    assert_int_equal(import_options(&w, &options, &graph, &why), 0);
    text = take_text(graph);
    assert_string_equal(text, "input in:x : float32[1,2]\n"
                              "weight w:a.weight : float32[2] frozen\n"
                              "buffer b:b.table : float32[2]\n"
                              "weight w:b.weight : float32[2]\n"
                              "%4 = Mul(in:x, w:a.weight) : float32[1,2]\n"
                              "%5 = Mul(%4, b:b.table) : float32[1,2]\n"
                              "%6 = Mul(%5, w:b.weight) : float32[1,2]\n"
                              "output %6\n");
    free(text);
    rb_writer_done(&w);
}

/* Running statistics know which output keeps them up to date, also where scale and bias are frozen;
 * statistics that are frozen themselves do not change. */
static void statistics(void **state)
{
    const char *const settings[] = {"image=8", "channels=1", "batchnorm=1"};
    const char *const freeze[] = {"c.1.*", "c.5.weight", "c.5.bias"};
    struct rb_import_options options = {.batch = 2, .train = true, .freeze = freeze, .n_freeze = 3};
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    int n = 0;

    assert_int_equal(rb_models_new("cnn", settings, 3, &bytes, &why), 0);
    assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
    assert_int_equal(rb_onnx_import(model, &options, &graph, &why), 0);
    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];
        bool mean = strstr(value->name, "running_mean") != NULL;

        assert_int_equal(value->id, i);
        if (!mean && !strstr(value->name, "running_var"))
            continue;
        n++;
        assert_int_equal(value->role, RB_VALUE_BUFFER);
        assert_int_equal(value->statistic, strncmp(value->name, "c.1.", 4) != 0);
        if (!value->statistic) {
            assert_null(value->update);
            continue;
        }
        assert_true(value->momentum == 0.9F);
        assert_int_equal(value->update->maker->op, RB_OP_BATCH_NORM);
        assert_int_equal(value->update->output, mean ? 1 : 2);
    }
    assert_int_equal(n, 6);
    rb_graph_free(graph);
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
}

static void half_frozen_statistics(void **state)
{
    const char *const settings[] = {"image=8", "channels=1", "batchnorm=1"};
    const char *const freeze[] = {"*.running_mean"};
    struct rb_import_options options = {.batch = 2, .train = true, .freeze = freeze, .n_freeze = 1};
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};

    assert_int_equal(rb_models_new("cnn", settings, 3, &bytes, &why), 0);
    assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
    assert_int_equal(rb_onnx_import(model, &options, &graph, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "running_var', which are frozen together"));
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
}

/* In evaluation mode PyTorch's older exporter writes scale and variance of a fresh norm once. */
static void statistics_that_were_merged(void **state)
{
    const char *const freeze[] = {"n.*"};

    for (int frozen = 0; frozen < 2; frozen++) {
        struct rb_import_options options = {
            .batch = 2, .train = true, .freeze = freeze, .n_freeze = frozen};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;

        start_writer(&w, 2, (int64_t[]){-1, 3});
        rb_writer_weight(&w, "n.weight", 1, (int64_t[]){3}, RB_INIT_ONE, 0);
        rb_writer_weight(&w, "n.bias", 1, (int64_t[]){3}, RB_INIT_ZERO, 0);
        rb_writer_weight(&w, "n.running_mean", 1, (int64_t[]){3}, RB_INIT_ZERO, 0);
        rb_writer_node(&w, "Identity", "n.running_var", "n.weight", NULL);
        rb_writer_node(&w, "BatchNormalization", "y", "x", "n.weight", "n.bias", "n.running_mean",
                       "n.running_var", NULL);
        if (frozen) {
            assert_int_equal(import_options(&w, &options, &graph, &why), 0);
            rb_graph_free(graph);
        } else {
            assert_int_equal(import_options(&w, &options, &graph, &why), RB_EUNSUPPORTED);
            assert_non_null(strstr(why.text, "'n.running_var' and 'n.weight' are one tensor here"));
        }
        rb_writer_done(&w);
    }
}

/* timm's ScaledStdConv2d standardizes a convolution's weights by F.batch_norm: training_mode=1 by
 * the older exporter, 0 by the newer. */
static void statistics_that_are_computed(void **state)
{
    static const char *const norms[] = {"= BatchNormEval(in:x, w:scale, w:bias, %3, %5) {",
                                        "= BatchNormalization(in:x, w:scale, w:bias) {"};

    for (int mode = 0; mode < 2; mode++) {
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        char *text;

        start_writer(&w, 3, (int64_t[]){-1, 3, 4});
        rb_writer_weight(&w, "scale", 1, (int64_t[]){3}, RB_INIT_ONE, 0);
        rb_writer_weight(&w, "bias", 1, (int64_t[]){3}, RB_INIT_ZERO, 0);
        rb_writer_node(&w, "ReduceMean", "mean", "x", NULL);
        rb_writer_ints(&w, "axes", 2, (int64_t[]){0, 2});
        rb_writer_int(&w, "keepdims", 0);
        rb_writer_node(&w, "Mul", "square", "x", "x", NULL);
        rb_writer_node(&w, "ReduceMean", "variance", "square", NULL);
        rb_writer_ints(&w, "axes", 2, (int64_t[]){0, 2});
        rb_writer_int(&w, "keepdims", 0);
        rb_writer_node(&w, "BatchNormalization", "y", "x", "scale", "bias", "mean", "variance",
                       NULL);
        rb_writer_int(&w, "training_mode", mode);
        if (import_batch(&w, 2, &graph, &why))
            fail_msg("%s", why.text);
        text = take_text(graph);
        if (!strstr(text, norms[mode]))
            fail_msg("mode %d: %s", mode, text);
        free(text);
        rb_writer_done(&w);
    }
}

/* PyTorch's older exporter writes an instance normalization with running statistics as a batch norm
 * over all samples' channels: without training_mode, but with the five outputs of old opsets. */
static void statistics_of_instances(void **state)
{
    for (int train = 0; train < 2; train++) {
        struct rb_import_options options = {.batch = 2, .train = train};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        Onnx__NodeProto *norm;
        char *text;

        start_writer(&w, 3, (int64_t[]){-1, 3, 4});
        rb_writer_weight(&w, "scale", 1, (int64_t[]){3}, RB_INIT_ONE, 0);
        rb_writer_weight(&w, "bias", 1, (int64_t[]){3}, RB_INIT_ZERO, 0);
        rb_writer_weight(&w, "n.running_mean", 1, (int64_t[]){3}, RB_INIT_ZERO, 0);
        rb_writer_weight(&w, "n.running_var", 1, (int64_t[]){3}, RB_INIT_ONE, 0);
        rb_writer_node(&w, "Mul", "mean", "n.running_mean", "scale", NULL);
        rb_writer_node(&w, "Mul", "variance", "n.running_var", "scale", NULL);
        rb_writer_node(&w, "BatchNormalization", "y", "x", "scale", "bias", "mean", "variance",
                       NULL);
        norm = w.graph.node[w.graph.n_node - 1];
        norm->output = rb_arena_alloc(&w.arena, 5 * sizeof *norm->output);
        norm->n_output = 5;
        for (int i = 0; i < 5; i++)
            norm->output[i] = i ? RB_WRITER_NAME(&w, "y%d", i) : (char *)(uintptr_t) "y";
        if (import_options(&w, &options, &graph, &why))
            fail_msg("%s", why.text);
        text = take_text(graph);
        if (!strstr(text, train ? "= BatchNormalization(in:x, w:scale, w:bias) {"
                                : "= BatchNormEval(in:x, w:scale, w:bias, "))
            fail_msg("%s", text);
        assert_int_equal(strstr(text, "weight w:n.running_mean") != NULL, !train);
        free(text);
        rb_writer_done(&w);
    }
}

/* A vector that falls is one of frequencies; any other vector may be a parameter. */
static void tables(void **state)
{
    static const float numbers[2][3] = {{1, 0.1F, 0.01F}, {0.3F, 0.9F, 0.2F}};

    for (int i = 0; i < 2; i++) {
        struct rb_buffer hints = {0};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        char *text;

        start_writer(&w, 2, (int64_t[]){-1, 3});
        rb_writer_weight(&w, "phase", 1, (int64_t[]){3}, RB_INIT_ONE, 0);
        memcpy(w.graph.initializer[0]->raw_data.data, numbers[i], sizeof numbers[i]);
        rb_writer_node(&w, "Sin", "table", "phase", NULL);
        rb_writer_node(&w, "Mul", "y", "x", "table", NULL);
        assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
        rb_hint_buffers(graph, &hints);
        assert_int_equal(hints.data && strstr(hints.data, "are made of it: phase; where"), !i);
        text = take_text(graph);
        assert_non_null(strstr(text, i ? "weight w:phase" : "buffer b:phase"));
        free(text);
        rb_buffer_done(&hints);
        rb_writer_done(&w);
    }
}

/* Half floats are counted: they may be the reason that there is nothing to train. */
static void half_floats(void **state)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, 2});
    rb_writer_weight(&w, "w", 1, (int64_t[]){2}, RB_INIT_ONE, 0);
    w.graph.initializer[0]->data_type = RB_BF16;
    w.graph.initializer[0]->raw_data.len /= 2;
    rb_writer_node(&w, "Cast", "c", "w", NULL);
    rb_writer_int(&w, "to", RB_F32);
    rb_writer_node(&w, "Mul", "y", "x", "c", NULL);
    assert_int_equal(import_batch(&w, 2, &graph, &why), 0);
    assert_int_equal(graph->other_floats, 1);
    rb_graph_free(graph);
    rb_writer_done(&w);
}

enum { DIVIDED, MULTIPLIED, BY_ANOTHER, PATHS };

/* Stochastic depth of torchvision and timm (Bernoulli's mask, divided), of transformers (a floor),
 * and a mask that only looks like it; x * 0.5 / 0.5 each. */
static void write_paths(struct rb_writer *w, int kind)
{
    const char *half = "half", *mask = "mask", *x = "x";

    start_writer(w, 3, (int64_t[]){-1, 3, 4});
    rb_writer_constant_float(w, half, 0.5F);
    rb_writer_constant_float(w, "third", 0.3F);
    rb_writer_node(w, "ReduceMean", "shape", "x", NULL);
    rb_writer_ints(w, "axes", 2, (int64_t[]){1, 2});
    rb_writer_node(w, "RandomUniformLike", "u", "shape", NULL);
    if (kind == MULTIPLIED) {
        rb_writer_node(w, "Floor", mask, rb_writer_node(w, "Add", "sum", half, "u", NULL), NULL);
        x = rb_writer_node(w, "Div", "scaled", "x", half, NULL);
    } else {
        rb_writer_node(w, "Cast", "bernoulli", rb_writer_node(w, "Less", "less", "u", half, NULL),
                       NULL);
        rb_writer_int(w, "to", RB_F32);
        rb_writer_node(w, "Div", mask, "bernoulli", kind == DIVIDED ? half : "third", NULL);
    }
    rb_writer_node(w, "Mul", "y", x, mask, NULL);
}

/* Training drops paths, evaluation keeps them; any other mask stays as the model has it. */
static void evaluation_keeps_paths(void **state)
{
    for (int i = 0; i < 2 * PATHS; i++) {
        struct rb_import_options options = {.batch = 2, .train = i % 2};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        char *text;

        write_paths(&w, i / 2);
        if (import_options(&w, &options, &graph, &why))
            fail_msg("%s", why.text);
        text = take_text(graph);
        if (!strstr(text, "Uniform") != (!options.train && i / 2 != BY_ANOTHER))
            fail_msg("%d, train %d: %s", i / 2, options.train, text);
        if (!options.train && i / 2 == MULTIPLIED)
            assert_non_null(strstr(text, "Mul(in:x, 1)"));
        free(text);
        rb_writer_done(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_buffers_and_fold),
        cmocka_unit_test(globs),
        cmocka_unit_test(statistics),
        cmocka_unit_test(half_frozen_statistics),
        cmocka_unit_test(statistics_that_were_merged),
        cmocka_unit_test(statistics_that_are_computed),
        cmocka_unit_test(statistics_of_instances),
        cmocka_unit_test(tables),
        cmocka_unit_test(half_floats),
        cmocka_unit_test(evaluation_keeps_paths),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
