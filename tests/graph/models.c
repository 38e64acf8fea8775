/* SPDX-License-Identifier: Apache-2.0 */
/* The model generators: names, sizes, seeds, and settings that are refused. */
#include "graph/models/models.h"

#include "graph/models/random.h"
#include "tests/graph/help.h"

#include <math.h>

static struct rb_graph *generate(const char *kind, const char *const *settings, int n)
{
    struct rb_import_options options = {.batch = 1, .train = true};
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};

    if (rb_models_new(kind, settings, n, &bytes, &why) ||
        rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why) ||
        rb_onnx_import(model, &options, &graph, &why))
        fail_msg("%s", why.text);
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
    return graph;
}

static int64_t count_parameters(const struct rb_graph *graph)
{
    int64_t count = 0;

    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->role == RB_VALUE_WEIGHT)
            count += rb_tensor_elements(&graph->values[i]->type);
    return count;
}

static const struct rb_value *find(const struct rb_graph *graph, const char *name)
{
    for (int i = 0; i < graph->n_values; i++)
        if (!strcmp(graph->values[i]->name, name))
            return graph->values[i];
    fail_msg("no value '%s'", name);
    return NULL;
}

/* The same counts as the PyTorch modules of the same shapes. */
static void defaults(void **state)
{
    struct rb_graph *graph = generate("gpt", NULL, 0);

    assert_int_equal(count_parameters(graph), 3323392);
    assert_int_equal(find(graph, "blocks.3.qkv.weight")->type.dim[0], 768);
    assert_int_equal(find(graph, "head.weight")->type.dim[0], 256);
    rb_graph_free(graph);
    graph = generate("mlp", NULL, 0);
    assert_int_equal(count_parameters(graph), 1863690);
    rb_graph_free(graph);
    graph = generate("cnn", NULL, 0);
    assert_int_equal(count_parameters(graph), 620362);
    rb_graph_free(graph);
}

static double deviation(const struct rb_value *value)
{
    int64_t n = rb_tensor_elements(&value->type);
    const float *data = value->data;
    double mean = 0, square = 0;

    for (int64_t i = 0; i < n; i++)
        mean += (double)data[i] / (double)n;
    for (int64_t i = 0; i < n; i++)
        square += ((double)data[i] - mean) * ((double)data[i] - mean) / (double)n;
    assert_true(fabs(mean) < 0.02 * sqrt(square));
    return sqrt(square);
}

/* Observed: within 0.3 %. */
static void initial_weights(void **state)
{
    struct rb_graph *graph = generate("gpt", NULL, 0);
    const float *data = find(graph, "lnf.weight")->data;

    assert_true(fabs(deviation(find(graph, "wte.weight")) / 0.02 - 1) < 0.01);
    assert_true(fabs(deviation(find(graph, "blocks.1.fc1.weight")) / 0.02 - 1) < 0.01);
    assert_true(fabs(deviation(find(graph, "blocks.1.proj.weight")) / (0.02 / sqrt(8)) - 1) < 0.01);
    assert_true(data[0] == 1 && data[255] == 1);
    data = find(graph, "blocks.0.qkv.bias")->data;
    assert_true(data[0] == 0 && data[767] == 0);
    rb_graph_free(graph);
    graph = generate("mlp", NULL, 0);
    assert_true(fabs(deviation(find(graph, "n.2.weight")) / (1 / sqrt(1024.0 * 3)) - 1) < 0.01);
    data = find(graph, "n.2.weight")->data;
    for (int i = 0; i < 1024 * 1024; i++)
        assert_true(fabsf(data[i]) <= 1.0F / 32);
    rb_graph_free(graph);
}

/* A change of these numbers changes every model that a user generates. */
static void random_numbers_are_fixed(void **state)
{
    float uniform[3], normal[3], again[2];

    rb_models_uniform(1, 2, 1, uniform, 3);
    rb_models_normal(1, 2, 1, normal, 3);
    rb_models_normal(1, 2, 1, again, 2);
    assert_memory_equal(normal, again, sizeof again);
    assert_true(uniform[0] == 0x1.9cd014p-1F && uniform[2] == -0x1.03e3a4p-1F);
    assert_true(normal[0] == -0x1.e5669ep-2F && normal[2] == -0x1.5fc50ap-1F);
}

static void seeds(void **state)
{
    const char *const settings[] = {"inputs=4", "hidden=4", "seed=1"};
    const char *const other[] = {"inputs=4", "hidden=4", "seed=2"};
    struct rb_buffer a = {0}, b = {0}, c = {0}, d = {0};

    assert_int_equal(rb_models_new("mlp", settings, 3, &a, NULL), 0);
    assert_int_equal(rb_models_new("mlp", settings, 3, &b, NULL), 0);
    assert_int_equal(rb_models_new("mlp", other, 3, &c, NULL), 0);
    assert_int_equal(rb_models_new("mlp", settings, 2, &d, NULL), 0);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.data, b.data, a.size);
    assert_memory_equal(a.data, d.data, a.size);
    assert_int_equal(a.size, c.size);
    assert_memory_not_equal(a.data, c.data, a.size);
    rb_buffer_done(&a);
    rb_buffer_done(&b);
    rb_buffer_done(&c);
    rb_buffer_done(&d);
}

static void batchnorm_shifts_names(void **state)
{
    const char *const settings[] = {"batchnorm=1", "dropout=0.5"};
    struct rb_graph *graph = generate("cnn", settings, 2);

    assert_int_equal(find(graph, "c.8.weight")->type.rank, 4);
    assert_int_equal(find(graph, "c.9.running_var")->type.rank, 1);
    assert_int_equal(find(graph, "f.3.weight")->type.rank, 2);
    rb_graph_free(graph);
}

static void expect_refused(const char *kind, const char *setting, int err, const char *want)
{
    struct rb_buffer bytes = {0};
    struct rb_why why = {0};

    assert_int_equal(rb_models_new(kind, &setting, setting ? 1 : 0, &bytes, &why), err);
    if (!strstr(why.text, want))
        fail_msg("'%s' does not say '%s'", why.text, want);
    assert_int_equal(bytes.size, 0);
    rb_buffer_done(&bytes);
}

static void refused(void **state)
{
    expect_refused("rnn", NULL, RB_EINVAL, "known are gpt, mlp, cnn");
    expect_refused("gpt", "depth=2", RB_EINVAL,
                   "one of: vocab layers width heads seq dropout seed");
    expect_refused("gpt", "layers", RB_EINVAL, "'layers' is no setting");
    expect_refused("gpt", "layers=0", RB_EINVAL, "layers: '0' is not an integer from 1 to 1024");
    expect_refused("gpt", "layers=2.5", RB_EINVAL, "layers");
    expect_refused("gpt", "layers=two", RB_EINVAL, "layers");
    expect_refused("gpt", "layers=", RB_EINVAL, "layers");
    expect_refused("gpt", "layers=nan", RB_EINVAL, "layers");
    expect_refused("gpt", "dropout=1", RB_EINVAL, "dropout: '1' is not a number from 0 to 0.99");
    expect_refused("gpt", "heads=7", RB_EINVAL, "width 256 does not divide into 7 heads");
    expect_refused("gpt", "width=65536", RB_ELIMIT, "2 GiB");
    expect_refused("cnn", "image=7", RB_EINVAL, "image");
    expect_refused("mlp", "inputs=16777216", RB_ELIMIT, "2 GiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(initial_weights),
        cmocka_unit_test(random_numbers_are_fixed),
        cmocka_unit_test(seeds),
        cmocka_unit_test(batchnorm_shifts_names),
        cmocka_unit_test(refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
