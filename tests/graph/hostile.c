/* SPDX-License-Identifier: Apache-2.0 */
/* Untrusted models: each is refused with a sentence, none crashes the importer. */
#include "graph/models/models.h"
#include "tests/graph/help.h"
#include "tests/graph/inside.h"

#include <stdio.h>

static int open_bytes(const struct rb_buffer *bytes, struct rb_why *why)
{
    struct rb_onnx *model = NULL;
    int err = rb_onnx_open_bytes(bytes->data, bytes->size, &model, why);

    rb_onnx_close(model);
    return err;
}

static void start(struct rb_writer *w)
{
    start_writer(w, 2, (int64_t[]){-1, 4});
}

/* ---- The wire ---- */

/* Put `bytes` into a length-delimited field of a new message. */
static void wrap(struct rb_buffer *bytes, int field)
{
    struct rb_buffer outer = {0};
    size_t size = bytes->size;

    rb_buffer_add(&outer, &(char){(char)(field << 3 | 2)}, 1);
    for (; size > 0x7f; size >>= 7)
        rb_buffer_add(&outer, &(char){(char)(size | 0x80)}, 1);
    rb_buffer_add(&outer, &(char){(char)size}, 1);
    rb_buffer_add(&outer, bytes->data, bytes->size);
    rb_buffer_done(bytes);
    *bytes = outer;
}

/* Graph > node > attribute > graph > ... */
static void depth_bomb(void **state)
{
    struct rb_buffer bytes = {0};
    struct rb_why why = {0};

    for (int i = 0; i < 3000; i++) {
        wrap(&bytes, 6); /* AttributeProto.g */
        wrap(&bytes, 5); /* NodeProto.attribute */
        wrap(&bytes, 1); /* GraphProto.node */
    }
    wrap(&bytes, 7); /* ModelProto.graph */
    assert_int_equal(open_bytes(&bytes, &why), RB_ELIMIT);
    assert_non_null(strstr(why.text, "nested too deep"));
    rb_buffer_done(&bytes);
}

/* Four MiB of empty nodes would unpack to 300 MiB. */
static void amplification(void **state)
{
    struct rb_buffer bytes = {0};
    struct rb_why why = {0};

    for (int i = 0; i < 2 << 20; i++)
        rb_buffer_add(&bytes, "\x0a\x00", 2);
    wrap(&bytes, 7);
    assert_int_equal(open_bytes(&bytes, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "unpacks to more than"));
    rb_buffer_done(&bytes);
}

static void truncated_anywhere(void **state)
{
    const char *const settings[] = {"inputs=3", "hidden=2", "depth=1", "classes=2"};
    struct rb_buffer bytes = {0}, cut;
    int opened = 0;

    assert_int_equal(rb_models_new("mlp", settings, 4, &bytes, NULL), 0);
    for (size_t size = 0; size < bytes.size; size++) {
        struct rb_why why = {0};

        cut = (struct rb_buffer){.data = malloc(size + 1), .size = size};
        memcpy(cut.data, bytes.data, size);
        if (open_bytes(&cut, &why) == 0)
            opened++;
        else
            assert_true(strlen(why.text) > 10);
        rb_buffer_done(&cut);
    }
    assert_int_equal(opened, 0); /* the opset stands last */
    rb_buffer_done(&bytes);
}

/* Whatever one changed byte does, it crashes nothing; the sanitizers watch. */
static void flipped_bytes(void **state)
{
    const char *const settings[] = {"vocab=3", "layers=1", "width=2", "heads=1", "seq=2"};
    struct rb_import_options options = {.batch = 2, .train = true};
    struct rb_buffer bytes = {0};
    int imported = 0;

    assert_int_equal(rb_models_new("gpt", settings, 5, &bytes, NULL), 0);
    for (size_t i = 0; i < bytes.size; i++) {
        struct rb_onnx *model = NULL;
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        char old = bytes.data[i];

        bytes.data[i] ^= (char)(1 + i % 255);
        if (!rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why) &&
            !rb_onnx_import(model, &options, &graph, &why))
            imported++;
        else
            assert_true(strlen(why.text) > 0);
        rb_graph_free(graph);
        rb_onnx_close(model);
        bytes.data[i] = old;
    }
    assert_in_range(imported, 1, bytes.size - 1);
    rb_buffer_done(&bytes);
}

/* ---- Graphs ---- */

static void unknown_operator(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Frobnicate", "y", "x", NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED,
                   "node 'y' (Frobnicate, opset 17): this operator is not supported; docs");
    start(&w);
    rb_writer_node(&w, "RoiAlign", "y", "x", NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "not supported; F.grid_sample");
    start(&w);
    rb_writer_node(&w, "NonZero", "y", "x", NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "depends on the data");
    start(&w);
    rb_writer_node(&w, "Loop", "y", "x", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "is float32, not int64");
}

static void unknown_value(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Add", "y", "x", "nothing", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "node 'y' (Add, opset 17): input 1 ('nothing') is made by no");
}

static void cycle(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Add", "a", "x", "y", NULL);
    rb_writer_node(&w, "Relu", "y", "a", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "cycle");
}

static void two_values_by_one_name(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "a second value by the name 'y'");
    start(&w);
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_node(&w, "Add", "y", "x", "w", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "two initializers by the name 'w'");
}

static void wrong_attribute_type(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Softmax", "y", "x", NULL);
    rb_writer_float(&w, "axis", 1);
    expect_refusal(&w, 1, RB_EINVAL, "attribute 'axis' is not an integer");
}

static void missing_inputs(void **state)
{
    static const char *const ops[] = {"Add",
                                      "Pow",
                                      "Where",
                                      "Clip",
                                      "MatMul",
                                      "Gemm",
                                      "Conv",
                                      "Range",
                                      "Gather",
                                      "Reshape",
                                      "Unsqueeze",
                                      "BatchNormalization",
                                      "LayerNormalization",
                                      "Split",
                                      "Concat",
                                      "MaxPool",
                                      "Slice"};
    struct rb_graph *graph = NULL;
    struct rb_writer w;

    for (size_t i = 0; i < RB_COUNT(ops); i++) {
        struct rb_why why = {0};

        start(&w);
        rb_writer_node(&w, ops[i], "y", "", "", NULL);
        assert_int_not_equal(import_batch(&w, 1, &graph, &why), 0);
        assert_non_null(strstr(why.text, ops[i]));
        rb_writer_done(&w);
    }
}

static void expect_reshape(const int64_t *shape, int n, const char *want)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Reshape", "y", "x", rb_writer_constant_ints(&w, "shape", n, shape), NULL);
    expect_refusal(&w, 2, n > 8 ? RB_EUNSUPPORTED : RB_EINVAL, want);
}

static void hostile_shapes(void **state)
{
    expect_reshape((int64_t[]){-2}, 1, "axis 0 has the size -2");
    expect_reshape((int64_t[]){-1, -1}, 2, "axis 1 has the size -1");
    expect_reshape((int64_t[]){INT64_MAX, INT64_MAX}, 2, "too many elements");
    expect_reshape((int64_t[]){3, -1}, 2, "do not divide");
    expect_reshape((int64_t[]){0, 0, 0}, 3, "a 0 at axis 2");
    expect_reshape((int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 9, "9 axes; the most is 8");
    expect_reshape((int64_t[]){7}, 1, "cannot become");
}

static void hostile_initializers(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    w.graph.initializer[0]->dims[0] = 5;
    rb_writer_node(&w, "Add", "y", "x", "w", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "initializer 'w': 16 bytes of data, its shape needs 20");
    start(&w);
    rb_writer_weight(&w, "w", 2, (int64_t[]){2, 2}, RB_INIT_ONE, 0);
    w.graph.initializer[0]->dims[0] = w.graph.initializer[0]->dims[1] = INT64_C(1) << 40;
    rb_writer_node(&w, "Add", "y", "x", "w", NULL);
    expect_refusal(&w, 1, RB_ELIMIT, "initializer 'w'");
    start(&w);
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    w.graph.initializer[0]->dims[0] = -4;
    rb_writer_node(&w, "Add", "y", "x", "w", NULL);
    expect_refusal(&w, 1, RB_EINVAL, "axis 0 has the size -4");
    start(&w);
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    w.graph.initializer[0]->data_type = 8; /* strings */
    rb_writer_node(&w, "Add", "y", "x", "w", NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "element type 8");
}

static void large_numbers(void **state)
{
    struct rb_writer w;

    start(&w);
    rb_writer_node(&w, "Expand", "y", "x",
                   rb_writer_constant_ints(&w, "shape", 3, (int64_t[]){INT64_MAX, 1, 4}), NULL);
    expect_refusal(&w, 1, RB_ELIMIT, "2^46");
    start(&w);
    rb_writer_node(&w, "ConstantOfShape", "c",
                   rb_writer_constant_ints(&w, "shape", 2, (int64_t[]){INT64_MAX, 4}), NULL);
    rb_writer_node(&w, "Add", "y", "x", "c", NULL);
    expect_refusal(&w, 1, RB_ELIMIT, "2^46");
    start(&w);
    rb_writer_node(&w, "Trilu", "y", "x",
                   rb_writer_constant_ints(&w, "k", 1, (int64_t[]){INT64_MIN}), NULL);
    expect_text(&w, 1,
                "input in:x : float32[1,4]\n"
                "%1 = Trilu(in:x) {upper 1, k -1} : float32[1,4]\noutput %1\n");
    start(&w);
    rb_writer_node(&w, "Range", "y", rb_writer_constant_float(&w, "a", 0),
                   rb_writer_constant_float(&w, "b", 1e30F), rb_writer_constant_float(&w, "c", 1),
                   NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "a range of 1e+30 numbers");
    start(&w);
    rb_writer_node(&w, "Div", "y", rb_writer_constant_ints(&w, "a", 1, (int64_t[]){INT64_MIN}),
                   rb_writer_constant_ints(&w, "b", 1, (int64_t[]){0}), NULL);
    expect_refusal(&w, 1, RB_EINVAL, "division of an integer by zero");
}

/* The class numbers are a constant; a shape must not decide how much memory it takes. */
static void countless_classes(void **state)
{
    struct rb_writer w;

    rb_writer_init(&w, "test", 1);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){1, INT64_C(1) << 43});
    rb_writer_input(&w, "labels", RB_I64, 1, (int64_t[]){1});
    rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "y", "x", "labels", NULL);
    rb_writer_output(&w, "y", 0, NULL);
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "8796093022208 classes; the most is 16777216");
}

static void hostile_names_in_messages(void **state)
{
    struct rb_writer w;
    char name[300];

    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    memcpy(name, "x\n\x1b[31m", 7);
    start(&w);
    rb_writer_node(&w, name, name, "x", NULL);
    w.graph.output[0]->name = name;
    expect_refusal(&w, 1, RB_EUNSUPPORTED, "node 'x??[31m");
}

/* Loops that never end, that end depending on the data, and that make too many nodes. */
static void loops(void **state)
{
    static const char *const said[] = {
        "more than 4096 rounds",
        "whether it goes on is computed from the data",
        "loops have more than 1048576 nodes",
        "output 0 of its body is made by no node",
        "do not fit with those of its body",
    };

    for (size_t i = 0; i < RB_COUNT(said); i++) {
        enum rb_error err = i == 2 ? RB_ELIMIT : i < 2 ? RB_EUNSUPPORTED : RB_EINVAL;
        struct rb_writer w;
        size_t first;

        start(&w);
        rb_writer_constant_ints(&w, "rounds", 1, (int64_t[]){4095});
        first = w.graph.n_node;
        rb_writer_node(&w, "Neg", "next", "h", NULL);
        if (i == 1)
            rb_writer_node(&w, "Less", "less", "h", "next", NULL);
        if (i == 2) { /* in each round another endless loop */
            rb_writer_node(&w, "Identity", "k", "h1", NULL);
            for (int j = 1; j < 600; j++)
                rb_writer_node(&w, "Identity", RB_WRITER_NAME(&w, "k%d", j), "h1", NULL);
            rb_writer_node(&w, "Loop", "deep", "rounds", "", "h", NULL);
            put_inside(&w, first + 1, "body", "j1 c1 h1", "c1 k");
        }
        rb_writer_node(&w, "Loop", "y", "", "", "x", NULL);
        put_inside(&w, first, "body", i == 4 ? "j c" : "j c h",
                   i == 1   ? "less next"
                   : i == 3 ? "nobody next"
                            : "c next");
        expect_refusal(&w, 1, err, said[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_bomb),
        cmocka_unit_test(amplification),
        cmocka_unit_test(truncated_anywhere),
        cmocka_unit_test(flipped_bytes),
        cmocka_unit_test(unknown_operator),
        cmocka_unit_test(unknown_value),
        cmocka_unit_test(cycle),
        cmocka_unit_test(two_values_by_one_name),
        cmocka_unit_test(wrong_attribute_type),
        cmocka_unit_test(missing_inputs),
        cmocka_unit_test(hostile_shapes),
        cmocka_unit_test(hostile_initializers),
        cmocka_unit_test(large_numbers),
        cmocka_unit_test(countless_classes),
        cmocka_unit_test(hostile_names_in_messages),
        cmocka_unit_test(loops),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
