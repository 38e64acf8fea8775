/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: operators in their normal form, operators whose meaning changed with the opset, a loss
 * in the file itself. */
#include "graph/models/models.h"
#include "tests/graph/help.h"

#include <stdio.h>

/* ---- Normalising ---- */

static void views(void **state)
{
    struct rb_writer w;
    const char *x;

    start_writer(&w, 3, (int64_t[]){-1, 1, 6});
    x = rb_writer_node(&w, "Squeeze", "a", "x",
                       rb_writer_constant_ints(&w, "axes", 1, (int64_t[]){-2}), NULL);
    x = rb_writer_node(&w, "Identity", "b", x, NULL);
    x = rb_writer_node(&w, "Unsqueeze", "c", x,
                       rb_writer_constant_ints(&w, "fresh", 2, (int64_t[]){0, -1}), NULL);
    x = rb_writer_node(&w, "Flatten", "d", x, NULL);
    rb_writer_int(&w, "axis", -2);
    rb_writer_node(&w, "Reshape", "y", x,
                   rb_writer_constant_ints(&w, "shape", 3, (int64_t[]){0, 3, -1}), NULL);
    expect_text(&w, 2,
                "input in:x : float32[2,1,6]\n"
                "%1 = Reshape(in:x) : float32[2,6]\n"
                "%2 = Reshape(%1) : float32[1,2,6,1]\n"
                "%3 = Reshape(%2) : float32[2,6]\n"
                "%4 = Reshape(%3) : float32[2,3,2]\n"
                "output %4\n");
}

/* The first state of a packed sequence has the batch of the export, not that of the job. */
static void zeros_expand_to_any_shape(void **state)
{
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, 3});
    rb_writer_constant_ints(&w, "three", 3, (int64_t[]){2, 2, 2});
    rb_writer_constant_ints(&w, "shape", 2, (int64_t[]){4, 2});
    rb_writer_node(&w, "Expand", "y", "three", "shape", NULL);
    expect_text(&w, 2,
                "input in:x : float32[2,3]\n"
                "const c:%1 : int64[4,2]\n"
                "output c:%1\n");
    start_writer(&w, 2, (int64_t[]){-1, 3});
    rb_writer_constant_ints(&w, "some", 3, (int64_t[]){2, 2, 1});
    rb_writer_constant_ints(&w, "shape", 2, (int64_t[]){1, 4});
    rb_writer_node(&w, "Expand", "y", "some", "shape", NULL);
    expect_refusal(&w, 2, RB_EINVAL, "the input, int64[3], does not broadcast to int64[1,4]");
}

/* Zeros that are expanded to a batch of one keep their number. */
static void zeros_are_the_first_state_of_one(void **state)
{
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;

    (void)state;
    for (int64_t batch = 1; batch < 4; batch++) {
        start_writer(&w, 3, (int64_t[]){-1, 5, 2});
        rb_writer_node(&w, "Transpose", "steps", "x", NULL);
        rb_writer_ints(&w, "perm", 3, (int64_t[]){1, 0, 2});
        rb_writer_constant_ints(&w, "of two", 3, (int64_t[]){1, 2, 1});
        rb_writer_node(&w, "ConstantOfShape", "zeros", "of two", NULL);
        rb_writer_constant_ints(&w, "shape", 3, (int64_t[]){1, batch, 1});
        rb_writer_node(&w, "Expand", "first", "zeros", "shape", NULL);
        rb_writer_node(&w, "RNN", "y", "steps",
                       rb_writer_weight(&w, "w", 3, (int64_t[]){1, 1, 2}, RB_INIT_ONE, 0),
                       rb_writer_weight(&w, "r", 3, (int64_t[]){1, 1, 1}, RB_INIT_ONE, 0), "", "",
                       "first", NULL);
        rb_writer_int(&w, "hidden_size", 1);
        if (import_batch(&w, batch, &graph, &why))
            fail_msg("%s", why.text);
        assert_int_equal(graph->outputs[0]->type.dim[2], batch);
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

/* torch.zeros([]), as dynamo=True writes it. */
static void no_integers_are_the_shape_of_a_scalar(void **state)
{
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, 3});
    rb_writer_node(&w, "Constant", "shape", NULL);
    rb_writer_ints(&w, "value_ints", 0, NULL);
    rb_writer_constant_float(&w, "low", -2);
    rb_writer_node(&w, "Expand", "scalar", "low", "shape", NULL);
    rb_writer_node(&w, "Add", "y", "x", "scalar", NULL);
    expect_text(&w, 2,
                "input in:x : float32[2,3]\n"
                "%2 = Add(in:x, -2) : float32[2,3]\n"
                "output %2\n");
}

static void a_mask_of_the_first_axes_is_told_from_one_of_the_last(void **state)
{
    struct rb_writer w;

    start_writer(&w, 3, (int64_t[]){-1, 3, 4});
    rb_writer_node(&w, "ReduceMax", "most", "x", NULL);
    rb_writer_ints(&w, "axes", 1, (int64_t[]){2});
    rb_writer_int(&w, "keepdims", 0);
    rb_writer_node(&w, "Cast", "mask", "most", NULL);
    rb_writer_int(&w, "to", RB_BOOL);
    rb_writer_node(&w, "Where", "y", "mask", "x", "x", NULL);
    expect_refusal(&w, 2, RB_EINVAL, "bool[2,3], has the first axes of float32[2,3,4]");
}

static void gemm_writes_out_alpha_and_beta(void **state)
{
    struct rb_writer w;
    const char *a, *b;

    start_writer(&w, 2, (int64_t[]){-1, 3});
    a = rb_writer_weight(&w, "w", 2, (int64_t[]){3, 4}, RB_INIT_NORMAL, 1);
    b = rb_writer_weight(&w, "b", 2, (int64_t[]){1, 4}, RB_INIT_NORMAL, 1);
    rb_writer_node(&w, "Gemm", "y", "x", a, b, NULL);
    rb_writer_float(&w, "alpha", 0.5F);
    rb_writer_float(&w, "beta", 2);
    expect_text(&w, 2,
                "input in:x : float32[2,3]\n"
                "weight w:w : float32[3,4]\n"
                "weight w:b : float32[1,4]\n"
                "%4 = Mul(w:b, 2) : float32[1,4]\n"
                "%5 = MatMul(in:x, w:w) : float32[2,4]\n"
                "%7 = Mul(%5, 0.5) : float32[2,4]\n"
                "%8 = Add(%7, %4) : float32[2,4]\n"
                "output %8\n");
}

static void matmul_of_vectors(void **state)
{
    struct rb_writer w;

    start_writer(&w, 3, (int64_t[]){-1, 5, 3});
    rb_writer_node(&w, "MatMul", "y", "x",
                   rb_writer_weight(&w, "w", 1, (int64_t[]){3}, RB_INIT_NORMAL, 1), NULL);
    expect_text(&w, 2,
                "input in:x : float32[2,5,3]\n"
                "weight w:w : float32[3]\n"
                "%2 = Reshape(w:w) : float32[3,1]\n"
                "%3 = MatMul(in:x, %2) : float32[2,5,1]\n"
                "%4 = Reshape(%3) : float32[2,5]\n"
                "output %4\n");
}

static void same_padding(void **state)
{
    struct rb_writer w;
    Onnx__AttributeProto *pad;

    start_writer(&w, 4, (int64_t[]){-1, 1, 5, 6});
    rb_writer_node(&w, "Conv", "y", "x",
                   rb_writer_weight(&w, "w", 4, (int64_t[]){2, 1, 3, 3}, RB_INIT_NORMAL, 1), NULL);
    rb_writer_ints(&w, "strides", 2, (int64_t[]){2, 2});
    rb_writer_int(&w, "auto_pad", 0);
    pad = w.graph.node[0]->attribute[1];
    pad->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
    pad->has_s = 1;
    pad->s = (ProtobufCBinaryData){.len = 10, .data = (uint8_t *)(uintptr_t) "SAME_LOWER"};
    expect_text(&w, 1,
                "input in:x : float32[1,1,5,6]\n"
                "weight w:w : float32[2,1,3,3]\n"
                "%2 = Conv(in:x, w:w) {strides 2 2, pads 1 1 1 0, dilations 1 1, group 1} : "
                "float32[1,2,3,3]\n"
                "output %2\n");
}

/* torch 2.15 gives a Conv3d without a bias zeros that are no bias. */
static void a_bias_of_zeros_has_any_shape(void **state)
{
    for (int bias = 0; bias < 2; bias++) {
        struct rb_writer w;

        start_writer(&w, 5, (int64_t[]){-1, 1, 2, 2, 2});
        rb_writer_weight(&w, "w", 5, (int64_t[]){3, 1, 2, 2, 2}, RB_INIT_ONE, 0);
        rb_writer_node(&w, "Expand", "b", rb_writer_constant_float(&w, "number", (float)bias),
                       rb_writer_constant_ints(&w, "shape", 2, (int64_t[]){3, 2}), NULL);
        rb_writer_node(&w, "Conv", "y", "x", "w", "b", NULL);
        if (bias)
            expect_refusal(&w, 2, RB_EINVAL, "the bias is not float32[3]");
        else
            expect_text(&w, 2,
                        "input in:x : float32[2,1,2,2,2]\n"
                        "weight w:w : float32[3,1,2,2,2]\n"
                        "%2 = Conv(in:x, w:w) {strides 1 1 1, pads 0 0 0 0 0 0, dilations 1 1 1, "
                        "group 1} : "
                        "float32[2,3,1,1,1]\n"
                        "output %2\n");
    }
}

static void slices_follow_numpy(void **state)
{
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, 10});
    rb_writer_node(&w, "Slice", "y", "x", rb_writer_constant_ints(&w, "starts", 1, (int64_t[]){-1}),
                   rb_writer_constant_ints(&w, "ends", 1, (int64_t[]){INT64_MIN}),
                   rb_writer_constant_ints(&w, "axes", 1, (int64_t[]){-1}),
                   rb_writer_constant_ints(&w, "steps", 1, (int64_t[]){-4}), NULL);
    expect_text(&w, 2,
                "input in:x : float32[2,10]\n"
                "%1 = Slice(in:x) {starts 0 9, steps 1 -4} : float32[2,3]\n"
                "output %1\n");
}

/* The same file under another opset. */
static int import_as(struct rb_writer *w, int64_t opset, char **ret_text, struct rb_why *why)
{
    struct rb_import_options options = {.batch = 2};
    struct rb_buffer bytes = {0}, changed = {0};
    Onnx__ModelProto *proto;
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    int err;

    assert_int_equal(rb_writer_finish(w, &bytes, why), 0);
    proto = onnx__model_proto__unpack(NULL, bytes.size, (uint8_t *)bytes.data);
    proto->opset_import[0]->version = opset;
    changed.size = onnx__model_proto__get_packed_size(proto);
    changed.data = malloc(changed.size);
    onnx__model_proto__pack(proto, (uint8_t *)changed.data);
    onnx__model_proto__free_unpacked(proto, NULL);
    err = rb_onnx_open_bytes(changed.data, changed.size, &model, why);
    if (!err)
        err = rb_onnx_import(model, &options, &graph, why);
    if (!err)
        *ret_text = take_text(graph);
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
    rb_buffer_done(&changed);
    return err;
}

static void softmax_saw_a_matrix_before_13(void **state)
{
    struct rb_why why = {0};
    struct rb_writer w;
    char *text;

    start_writer(&w, 3, (int64_t[]){-1, 3, 4});
    rb_writer_node(&w, "Softmax", "y", "x", NULL);
    assert_int_equal(import_as(&w, 12, &text, &why), 0);
    assert_string_equal(text, "input in:x : float32[2,3,4]\n"
                              "%1 = Reshape(in:x) : float32[2,12]\n"
                              "%2 = Softmax(%1) {axis 1} : float32[2,12]\n"
                              "%3 = Reshape(%2) : float32[2,3,4]\n"
                              "output %3\n");
    free(text);
    assert_int_equal(import_as(&w, 13, &text, &why), 0);
    assert_string_equal(text, "input in:x : float32[2,3,4]\n"
                              "%1 = Softmax(in:x) {axis 2} : float32[2,3,4]\n"
                              "output %1\n");
    free(text);
    rb_writer_done(&w);
}

static void axes_moved_from_attribute_to_input(void **state)
{
    static const char want[] = "input in:x : float32[2,3,4]\n"
                               "%1 = ReduceMean(in:x) {axes 1} : float32[2,1,4]\n"
                               "output %1\n";
    struct rb_why why = {0};
    struct rb_writer w;
    char *text;

    start_writer(&w, 3, (int64_t[]){-1, 3, 4});
    rb_writer_node(&w, "ReduceMean", "y", "x", NULL);
    rb_writer_ints(&w, "axes", 1, (int64_t[]){-2});
    assert_int_equal(import_as(&w, 17, &text, &why), 0);
    assert_string_equal(text, want);
    free(text);
    rb_writer_done(&w);
    start_writer(&w, 3, (int64_t[]){-1, 3, 4});
    rb_writer_node(&w, "ReduceMean", "y", "x",
                   rb_writer_constant_ints(&w, "axes", 1, (int64_t[]){-2}), NULL);
    assert_int_equal(import_as(&w, 18, &text, &why), 0);
    assert_string_equal(text, want);
    free(text);
    rb_writer_done(&w);
}

static void opsets_out_of_range_are_named(void **state)
{
    struct rb_why why = {0};
    struct rb_writer w;
    char *text;

    start_writer(&w, 1, (int64_t[]){-1});
    rb_writer_node(&w, "Relu", "y", "x", NULL);
    assert_int_equal(import_as(&w, -3, &text, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "opset -3; 1 to 23 are supported"));
    assert_int_equal(import_as(&w, 24, &text, &why), RB_EUNSUPPORTED);
    assert_non_null(strstr(why.text, "opset 24"));
    rb_writer_done(&w);
}

/* A NaN is neither above nor below a bound, so clipping keeps it. */
static void clip_keeps_nan(void **state)
{
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, 3});
    rb_writer_node(&w, "Clip", "y", "x", rb_writer_constant_float(&w, "low", 0),
                   rb_writer_constant_float(&w, "high", 6), NULL);
    expect_text(&w, 2,
                "input in:x : float32[2,3]\n"
                "%3 = Greater(0, in:x) : bool[2,3]\n"
                "%4 = Where(%3, 0, in:x) : float32[2,3]\n"
                "%5 = Less(6, %4) : bool[2,3]\n"
                "%6 = Where(%5, 6, %4) : float32[2,3]\n"
                "output %6\n");
}

/* ---- A loss of its own ---- */

static void own_loss(void **state)
{
    struct rb_import_options options = {.batch = 2, .train = true};
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    struct rb_writer w;
    char *text;

    start_writer(&w, 2, (int64_t[]){-1, 3});
    rb_writer_input(&w, "labels", RB_I64, 1, (int64_t[]){-1});
    rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "y", "x", "labels", NULL);
    assert_int_equal(import_options(&w, &options, &graph, &why), 0);
    assert_string_equal(graph->targets->name, "labels");
    text = take_text(graph);
    assert_string_equal(text, "input in:x : float32[2,3]\n"
                              "input in:labels : int64[2]\n"
                              "const c:%3 : int64[1,3]\n"
                              "%2 = LogSoftmax(in:x) {axis 1} : float32[2,3]\n"
                              "%4 = Reshape(in:labels) : int64[2,1]\n"
                              "%5 = Equal(%4, c:%3) : bool[2,3]\n"
                              "%7 = Where(%5, %2, 0) : float32[2,3]\n"
                              "%8 = ReduceSum(%7) {axes 1} : float32[2]\n"
                              "%9 = Neg(%8) : float32[2]\n"
                              "%13 = Less(in:labels, 0) : bool[2]\n"
                              "%14 = Where(%13, nan, %9) : float32[2]\n"
                              "%16 = Greater(in:labels, 2) : bool[2]\n"
                              "%17 = Where(%16, nan, %14) : float32[2]\n"
                              "%18 = ReduceMean(%17) {axes 0} : float32[]\n"
                              "output %18\n");
    free(text);
    rb_writer_done(&w);
}

/* Rows that are known at import must exist in the table, like positions up to the length of a
 * sample. */
static void known_rows(void **state)
{
    static const struct {
        int64_t row;
        bool there;
    } rows[] = {{2, true}, {-3, true}, {3, false}, {-4, false}};

    for (size_t i = 0; i < RB_COUNT(rows); i++) {
        struct rb_import_options options = {.batch = 2, .train = true};
        struct rb_graph *graph = NULL;
        struct rb_why why = {0};
        struct rb_writer w;
        const char *at;

        start_writer(&w, 2, (int64_t[]){-1, 4});
        at = rb_writer_constant_ints(&w, "at", 2, (int64_t[]){0, rows[i].row});
        at = rb_writer_node(&w, "Gather", "found",
                            rb_writer_weight(&w, "table", 2, (int64_t[]){3, 4}, RB_INIT_NORMAL, 1),
                            at, NULL);
        rb_writer_node(&w, "Add", "y", "x", at, NULL);
        assert_int_equal(import_options(&w, &options, &graph, &why), rows[i].there ? 0 : RB_EINVAL);
        if (!rows[i].there)
            assert_non_null(strstr(why.text, "is outside axis 0 of 'table', which has 3"));
        rb_graph_free(graph);
        rb_writer_done(&w);
    }
}

/* Kernels of roots and similar operators take floats, as the operators' definitions say. */
static void roots_of_integers(void **state)
{
    struct rb_writer w;

    start_writer(&w, 2, (int64_t[]){-1, 3});
    rb_writer_node(&w, "Cast", "n", "x", NULL);
    rb_writer_int(&w, "to", RB_I32);
    rb_writer_node(&w, "Sqrt", "y", "n", NULL);
    expect_refusal(&w, 2, RB_EUNSUPPORTED,
                   "node 'y' (Sqrt, opset 17): the input is int32; float32 or float64 is needed");
}

static void info(void **state)
{
    struct rb_buffer bytes = {0};
    struct rb_onnx_info info;
    struct rb_onnx *model = NULL;
    struct rb_why why = {0};

    assert_int_equal(rb_models_new("mlp", NULL, 0, &bytes, &why), 0);
    assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
    assert_int_equal(rb_onnx_info(model, &info, &why), 0);
    assert_int_equal(info.opset, 17);
    assert_int_equal(info.ir_version, 8);
    assert_string_equal(info.producer, "rubato");
    assert_string_equal(info.input, "features");
    assert_int_equal(info.n_nodes, 5);
    assert_int_equal(info.n_initializers, 6);
    assert_int_equal(info.input_type.rank, 2);
    assert_int_equal(info.input_type.dim[0], -1);
    assert_int_equal(info.input_type.dim[1], 784);
    assert_int_equal(info.fixed_batch, 0);
    rb_onnx_close(model);
    rb_buffer_done(&bytes);
}

/* Sizes that windows and pads would carry beyond what an integer holds. */
static void endless_image(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct rb_why why = {0};
        struct rb_writer w;
        char *text = NULL;

        start_writer(&w, 3, (int64_t[]){-1, 4, 4});
        rb_writer_node(&w, "Col2Im", "y", "x",
                       rb_writer_constant_ints(&w, "image", 2, (int64_t[]){3, i ? INT64_MAX : -3}),
                       rb_writer_constant_ints(&w, "block", 2, (int64_t[]){2, 2}), NULL);
        rb_writer_ints(&w, "pads", 4, (int64_t[]){0, 1, 0, 1});
        assert_int_equal(import_as(&w, 18, &text, &why), RB_EUNSUPPORTED);
        assert_non_null(strstr(why.text, i ? "an image of 922" : "an image of -3"));
        rb_writer_done(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views),
        cmocka_unit_test(zeros_expand_to_any_shape),
        cmocka_unit_test(zeros_are_the_first_state_of_one),
        cmocka_unit_test(no_integers_are_the_shape_of_a_scalar),
        cmocka_unit_test(a_mask_of_the_first_axes_is_told_from_one_of_the_last),
        cmocka_unit_test(gemm_writes_out_alpha_and_beta),
        cmocka_unit_test(matmul_of_vectors),
        cmocka_unit_test(same_padding),
        cmocka_unit_test(a_bias_of_zeros_has_any_shape),
        cmocka_unit_test(slices_follow_numpy),
        cmocka_unit_test(softmax_saw_a_matrix_before_13),
        cmocka_unit_test(endless_image),
        cmocka_unit_test(axes_moved_from_attribute_to_input),
        cmocka_unit_test(opsets_out_of_range_are_named),
        cmocka_unit_test(clip_keeps_nan),
        cmocka_unit_test(own_loss),
        cmocka_unit_test(known_rows),
        cmocka_unit_test(roots_of_integers),
        cmocka_unit_test(info),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
