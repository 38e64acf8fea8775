/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of models against models written by hand: they report what a submit would do. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "graph/models/writer.h"
#include "proto/safetensors.h"
#include "tests/ctl/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static struct fake fake;

static int begin(void **state)
{
    static const struct fake_reply none[] = {{0}};

    (void)state;
    fake_start(&fake, none);
    return 0;
}

static int end(void **state)
{
    (void)state;
    fake_stop(&fake);
    return 0;
}

static void expect(int code, const char *out, const char *err, const char *const *words)
{
    cli_expect(&fake, code, out, err, words);
}

/* ---- Files ---- */

static void write_model(struct rb_writer *w, const char *output, const char *name)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", fake.folder, name);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_why why = {0};

    rb_writer_output(w, output, 0, NULL);
    if (rb_writer_finish(w, &onnx, &why) || rb_file_write(path, onnx.data, onnx.size, &why))
        fail_msg("%s", why.text);
    rb_writer_done(w);
}

static void write_npy(const char *name, const char *type, const char *shape, const void *data,
                      size_t size)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", fake.folder, name);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};

    rb_buffer_add(&file, "\x93NUMPY\1\0\x76\0", 10);
    rb_buffer_format(&file, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", type,
                     shape);
    while (file.size < 127)
        rb_buffer_text(&file, " ");
    rb_buffer_text(&file, "\n");
    rb_buffer_add(&file, data, size);
    assert_int_equal(rb_file_write(path, file.data, file.size, NULL), 0);
}

/* An axis of this name, without a fixed size. */
static void free_axis(struct rb_writer *w, int input, int axis, const char *name)
{
    Onnx__TensorShapeProto__Dimension *dim =
        w->graph.input[input]->type->tensor_type->shape->dim[axis];

    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    dim->dim_param = rb_arena_string(&w->arena, name);
}

/* Reads the bytes after the header of a written array, which must be `size`. */
static void read_npy(const char *name, void *ret, size_t size)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", fake.folder, name);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};

    assert_int_equal(rb_file_read(path, 1 << 20, &file, NULL), 0);
    assert_int_equal(file.size, 128 + size);
    memcpy(ret, file.data + 128, size);
}

/* ---- model run ---- */

/* Exporters name a node by its place in the module; the output has the name that its author gave
 * it. */
static void outputs_have_the_names_of_the_file(void **state)
{
    const float x[] = {1, 2, 3};
    struct rb_writer w;

    (void)state;
    write_npy("one.npy", "<f4", "1, 3", x, sizeof x);
    rb_writer_init(&w, "named", 1);
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(-1, 3));
    rb_writer_node(&w, "Relu", "scores", "x", NULL);
    w.graph.node[0]->name = rb_arena_string(&w.arena, "/head/Relu");
    write_model(&w, "scores", "named.onnx");
    expect(4, "outputs     'scores': float32[any, 3]", "", WORDS("model", "check", "named.onnx"));
    expect(0, "result/scores.npy", "",
           WORDS("model", "run", "named.onnx", "--input", "one.npy", "--out", "result"));
    expect(4, "", "--input y=one.npy: the model has the input 'x' (float32[any, 3]); say",
           WORDS("model", "run", "named.onnx", "--input", "y=one.npy"));
}

static void write_weights(const char *name, const char *tensor, int rows, const float *data)
{
    struct rb_safetensor tensors[] = {
        {tensor, {RB_F32, 2, {rows, 4}}, data},
        {"spare", {RB_F32, 1, {1}}, data},
    };
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", fake.folder, name);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};

    rb_safetensors_header(tensors, 2, &file);
    for (size_t i = 0; i < RB_COUNT(tensors); i++)
        rb_buffer_add(&file, tensors[i].data, (size_t)rb_tensor_elements(&tensors[i].type) * 4);
    assert_int_equal(rb_file_write(path, file.data, file.size, NULL), 0);
}

/* As `export` writes them, and as spec.model.weights takes them. */
static void weights_from_another_file(void **state)
{
    const float x[] = {1, 2, 3, 4}, twice[16] = {2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2};
    const float want[] = {2, 4, 6, 8};
    struct rb_writer w;
    float got[4];

    (void)state;
    write_npy("four.npy", "<f4", "1, 4", x, sizeof x);
    rb_writer_init(&w, "some", 1);
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(-1, 4));
    write_model(&w,
                rb_writer_node(&w, "MatMul", "h", "x",
                               rb_writer_weight(&w, "w", 2, DIMS(4, 4), RB_INIT_NORMAL, 1), NULL),
                "weighed.onnx");
    write_weights("twice.safetensors", "w", 4, twice);
    write_weights("short.safetensors", "w", 2, twice);
    write_weights("alien.safetensors", "v", 4, twice);
    expect(0, "weighed/h.npy", "--weights: the model lacks 1 of the file's tensors: spare",
           WORDS("model", "run", "weighed.onnx", "--input", "four.npy", "--weights",
                 "twice.safetensors", "--out", "weighed"));
    read_npy("weighed/h.npy", got, sizeof got);
    assert_memory_equal(got, want, sizeof want);
    expect(4, "", "--weights: short.safetensors",
           WORDS("model", "run", "weighed.onnx", "--input", "four.npy", "--weights",
                 "short.safetensors"));
    expect(4, "", "--weights: alien.safetensors",
           WORDS("model", "run", "weighed.onnx", "--input", "four.npy", "--weights",
                 "alien.safetensors"));
    expect(3, "", "--weights: none.safetensors",
           WORDS("model", "run", "weighed.onnx", "--input", "four.npy", "--weights",
                 "none.safetensors"));
}

/* The last byte that the writer makes is the opset: 6, where `axis` says where the exponents
 * belong. */
static void exponents_before_opset_7(void **state)
{
    const float bases[] = {2, 3, 4, 5}, exponents[] = {1, 2}, want[] = {2, 3, 16, 25};
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/pow.onnx", fake.folder);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer model = {0};
    struct rb_writer w;
    float got[4];

    (void)state;
    write_npy("bases.npy", "<f4", "2, 2", bases, sizeof bases);
    write_npy("exponents.npy", "<f4", "2,", exponents, sizeof exponents);
    rb_writer_init(&w, "powers", 1);
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(2, 2));
    rb_writer_input(&w, "y", RB_F32, 1, DIMS(2));
    rb_writer_node(&w, "Pow", "z", "x", "y", NULL);
    rb_writer_int(&w, "broadcast", 1);
    rb_writer_int(&w, "axis", 0);
    write_model(&w, "z", "pow.onnx");
    assert_int_equal(rb_file_read(path, 1 << 20, &model, NULL), 0);
    assert_int_equal(model.data[model.size - 1], 17);
    model.data[model.size - 1] = 6;
    assert_int_equal(rb_file_write(path, model.data, model.size, NULL), 0);
    expect(0, "powers/z.npy", "",
           WORDS("model", "run", "pow.onnx", "--input", "x=bases.npy", "--input", "y=exponents.npy",
                 "--out", "powers"));
    read_npy("powers/z.npy", got, sizeof got);
    assert_memory_equal(got, want, sizeof want);
}

/* Targets of a loss that is in the model go by their own name. */
static void labels_are_an_input_like_any_other(void **state)
{
    const float scores[] = {0, 0, 0, 9, 0, 0};
    const int64_t labels[] = {2, 0};
    struct rb_writer w;
    float loss;

    (void)state;
    write_npy("scores.npy", "<f4", "2, 3", scores, sizeof scores);
    write_npy("labels.npy", "<i8", "2,", labels, sizeof labels);
    rb_writer_init(&w, "lost", 1);
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(2, 3));
    rb_writer_input(&w, "y", RB_I64, 1, DIMS(2));
    write_model(&w, rb_writer_node(&w, "SoftmaxCrossEntropyLoss", "loss", "x", "y", NULL),
                "lost.onnx");
    expect(0, "lost/loss.npy", "",
           WORDS("model", "run", "lost.onnx", "--input", "x=scores.npy", "--input", "y=labels.npy",
                 "--out", "lost"));
    read_npy("lost/loss.npy", &loss, sizeof loss);
    assert_true(fabsf(loss - 0.549430f) < 1e-5f); /* (ln 3 + ln(1 + 2 e^-9)) / 2 */
}

/* 40 samples are two batches.  An output that is made of a weight alone has the length of one
 * batch, or no axis, and comes out once; the mean of a batch differs for each batch. */
static void outputs_without_a_batch(void **state)
{
    static const struct {
        int64_t rank;
        int made; /* 0: of samples, 1: of a weight, 2: a mean */
        bool fixed;
        size_t want; /* numbers; 0: refused */
    } cases[] = {{2, 0, false, 80}, {2, 0, true, 80}, {1, 1, false, 32}, {1, 1, true, 3},
                 {0, 1, false, 1},  {0, 2, false, 0}, {0, 2, true, 0}};
    float x[80], got[80];

    (void)state;
    for (int i = 0; i < 80; i++)
        x[i] = (float)i;
    write_npy("forty.npy", "<f4", "40, 2", x, sizeof x);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        const int64_t length = cases[i].fixed ? 3 : 32;
        struct rb_writer w;
        const char *y;

        rb_writer_init(&w, "apart", 1);
        rb_writer_input(&w, "x", RB_F32, 2, DIMS(cases[i].fixed ? 4 : -1, 2));
        if (cases[i].made == 1)
            y = rb_writer_node(
                &w, "Neg", "y",
                rb_writer_weight(&w, "w", (int)cases[i].rank, &length, RB_INIT_ONE, 0), NULL);
        else
            y = rb_writer_node(&w, cases[i].made ? "ReduceMean" : "Neg", "y", "x", NULL);
        if (cases[i].made == 2)
            rb_writer_int(&w, "keepdims", 0);
        write_model(&w, y, "apart.onnx");
        expect(cases[i].want ? 0 : 4, cases[i].want ? "apart/y.npy" : "",
               cases[i].want ? "" : "is not the batch, and the output is another one for every",
               WORDS("model", "run", "apart.onnx", "--input", "forty.npy", "--out", "apart"));
        if (cases[i].want)
            read_npy("apart/y.npy", got, cases[i].want * sizeof *got);
        for (size_t j = 0; j < cases[i].want; j++)
            assert_true(got[j] == (cases[i].made ? -1 : -x[j]));
    }
}

static void a_file_for_each_input(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, 30, 40, 50, 60};
    const float want[] = {10, 40, 90, 160, 250, 360};
    const uint8_t mask[] = {1, 0, 1, 1, 0, 1};
    float got[RB_COUNT(want)];
    struct rb_writer w;

    (void)state;
    write_npy("x.npy", "<f4", "2, 3", x, sizeof x);
    write_npy("y.npy", "<f4", "2, 3", y, sizeof y);
    write_npy("short.npy", "<f4", "1, 3", y, sizeof y / 2);
    write_npy("mask.npy", "|b1", "2, 3", mask, sizeof mask);
    rb_writer_init(&w, "two", 1);
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(-1, 3));
    rb_writer_input(&w, "y", RB_F32, 2, DIMS(-1, 3));
    free_axis(&w, 0, 1, "wide");
    write_model(&w, rb_writer_node(&w, "Mul", "z", "x", "y", NULL), "two.onnx");

    expect(4, "", "'x' (float32[any, any]), 'y' (float32[any, 3])",
           WORDS("model", "run", "two.onnx", "--input", "x.npy"));
    expect(4, "", "the model's input 'y', float32[any, 3], has no file",
           WORDS("model", "run", "two.onnx", "--input", "x=x.npy"));
    expect(4, "", "two files for the model's input 'x'",
           WORDS("model", "run", "two.onnx", "--input", "x=x.npy", "--input", "x=y.npy"));
    expect(4, "", "short.npy holds 1 samples",
           WORDS("model", "run", "two.onnx", "--input", "x=x.npy", "--input", "y=short.npy"));
    expect(0, "result/z.npy", "",
           WORDS("model", "run", "two.onnx", "--input", "y=y.npy", "--input", "x=x.npy", "--out",
                 "result"));
    read_npy("result/z.npy", got, sizeof got);
    assert_memory_equal(got, want, sizeof want);

    rb_writer_init(&w, "chosen", 1);
    rb_writer_input(&w, "mask", RB_BOOL, 2, DIMS(-1, 3));
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(-1, 3));
    rb_writer_input(&w, "y", RB_F32, 2, DIMS(-1, 3));
    write_model(&w, rb_writer_node(&w, "Where", "z", "mask", "x", "y", NULL), "chosen.onnx");
    expect(0, "result/z.npy", "",
           WORDS("model", "run", "chosen.onnx", "--input", "x=x.npy", "--input", "y=y.npy",
                 "--input", "mask=mask.npy", "--out", "result"));
    read_npy("result/z.npy", got, sizeof got);
    for (int i = 0; i < 6; i++)
        assert_memory_equal(&got[i], mask[i] ? &x[i] : &y[i], 4);
}

/* Numbers that are not 0 are true, too; an int32 is refused rather than cut off. */
static void files_of_other_types(void **state)
{
    const float x[] = {0, 0.25F, -1}, want[] = {0, 1, 1};
    const int64_t kinds[] = {1, 2, (1LL << 32) + 1};
    float got[RB_COUNT(want)];
    struct rb_writer w;

    (void)state;
    write_npy("parts.npy", "<f4", "3, 1", x, sizeof x);
    write_npy("kinds.npy", "<i8", "3, 1", kinds, sizeof kinds);
    rb_writer_init(&w, "truth", 1);
    rb_writer_input(&w, "x", RB_BOOL, 2, DIMS(-1, 1));
    rb_writer_node(&w, "Cast", "y", "x", NULL);
    rb_writer_int(&w, "to", 1);
    write_model(&w, "y", "truth.onnx");
    expect(0, "truth/y.npy", "",
           WORDS("model", "run", "truth.onnx", "--input", "parts.npy", "--out", "truth"));
    read_npy("truth/y.npy", got, sizeof got);
    assert_memory_equal(got, want, sizeof want);

    rb_writer_init(&w, "kinds", 1);
    rb_writer_input(&w, "x", RB_I32, 2, DIMS(-1, 1));
    write_model(&w, rb_writer_node(&w, "Neg", "y", "x", NULL), "kinds.onnx");
    expect(4, "", "the model's input 'x': 4294967297 is no int32",
           WORDS("model", "run", "kinds.onnx", "--input", "kinds.npy", "--out", "kinds"));
    expect(4, "", "the model's input 'x' takes 3 int32 for 3 samples, the file has 3 float32",
           WORDS("model", "run", "kinds.onnx", "--input", "parts.npy", "--out", "kinds"));
}

/* ---- model check, profile ---- */

/* x and further inputs of 4 numbers; returns x times a weight. */
static const char *start(struct rb_writer *w, int inputs)
{
    static const char *const names[] = {"x", "y", "z"};

    rb_writer_init(w, "some", 1);
    for (int i = 0; i < inputs; i++)
        rb_writer_input(w, names[i], RB_F32, 2, DIMS(-1, 4));
    return rb_writer_node(w, "MatMul", "h", "x",
                          rb_writer_weight(w, "w", 2, DIMS(4, 4), RB_INIT_NORMAL, 1), NULL);
}

static const char *mean(struct rb_writer *w, const char *of)
{
    const char *output = rb_writer_node(w, "ReduceMean", "loss", of, NULL);

    rb_writer_int(w, "keepdims", 0);
    return output;
}

/* How a job file fills several inputs. */
static void several_inputs(void **state)
{
    struct rb_writer w;
    const char *x;

    (void)state;
    x = start(&w, 2);
    write_model(&w, rb_writer_node(&w, "Mul", "gated", x, "y", NULL), "gated.onnx");
    expect(0, "path is 'x', and what else there is goes into inputs: [{name: y, path: FILE}]\n", "",
           WORDS("model", "check", "gated.onnx"));
    expect(0, "Mul", "", WORDS("profile", "gated.onnx"));
    x = start(&w, 1);
    rb_writer_input(&w, "onnx::Mul_1", RB_F32, 2, DIMS(-1, 4));
    rb_writer_input(&w, "it's: [1]", RB_F32, 2, DIMS(-1, 4));
    x = rb_writer_node(&w, "Mul", "some", x, "onnx::Mul_1", NULL);
    write_model(&w, rb_writer_node(&w, "Mul", "all", x, "it's: [1]", NULL), "odd.onnx");
    expect(0, "inputs: [{name: onnx::Mul_1, path: FILE}, {name: 'it''s: [1]', path: FILE}]\n", "",
           WORDS("model", "check", "odd.onnx"));
    x = start(&w, 2);
    write_model(&w, mean(&w, rb_writer_node(&w, "Sub", "error", x, "y", NULL)), "loss.onnx");
    expect(0, "1 MatMul, 1 Sub, 1 ReduceMean", "", WORDS("model", "check", "loss.onnx"));
    expect(0, "GraphLoss", "", WORDS("profile", "loss.onnx"));
    x = start(&w, 3);
    x = rb_writer_node(&w, "Sub", "error", x, "y", NULL);
    write_model(&w, mean(&w, rb_writer_node(&w, "Mul", "weighted", x, "z", NULL)), "three.onnx");
    expect(0, "{name: z, path: FILE}]; labels among them may be given as targets", "",
           WORDS("model", "check", "three.onnx"));
}

/* y = x + a weight of n numbers; x may have any length. */
static void write_sum(const char *path, int64_t n)
{
    struct rb_writer w;

    rb_writer_init(&w, "sum", 1);
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(-1, 0));
    free_axis(&w, 0, 1, "time");
    rb_writer_node(&w, "Add", "y", "x", rb_writer_weight(&w, "w", 1, DIMS(n), RB_INIT_NORMAL, 1),
                   NULL);
    write_model(&w, "y", path);
}

/* The axis gets a size that the model takes, and the output says which. */
static void axes_of_no_size(void **state)
{
    struct rb_writer w;

    (void)state;
    rb_writer_init(&w, "free", 1);
    rb_writer_input(&w, "x", RB_F32, 3, DIMS(-1, 0, 4));
    free_axis(&w, 0, 1, "time");
    rb_writer_node(&w, "MatMul", "y", "x",
                   rb_writer_weight(&w, "w", 2, DIMS(4, 4), RB_INIT_NORMAL, 1), NULL);
    write_model(&w, "y", "free.onnx");
    expect(0, "axis 1 of 'x': no size of its own, taken as 16 here", "",
           WORDS("model", "check", "free.onnx"));
    expect(0, "taken as 5 here", "", WORDS("model", "check", "free.onnx", "--seq", "5"));
    expect(0, "free axes    5 long", "", WORDS("profile", "free.onnx", "--seq", "5"));
    expect(0, "free axes    16 long", "", WORDS("profile", "free.onnx"));
    write_sum("short.onnx", 7);
    expect(0, "taken as 7 here", "", WORDS("model", "check", "short.onnx"));
    expect(4, "", "'y' (Add", WORDS("model", "check", "short.onnx", "--seq", "8"));
    write_sum("large.onnx", 5000);
    expect(4, "", "free axes taken as 16 (--seq N: as N): ", WORDS("model", "check", "large.onnx"));
    expect(0, "", "", WORDS("model", "check", "large.onnx", "--seq", "5000"));
    start(&w, 1);
    write_model(&w, "h", "fixed.onnx");
    expect(4, "", "no axis of the model's inputs behind the first is free",
           WORDS("model", "check", "fixed.onnx", "--seq", "7"));
    expect(2, "", "--seq goes with a model", WORDS("profile", "job", "--seq", "7"));
    expect(2, "", "'x' is no count", WORDS("model", "check", "fixed.onnx", "--seq", "x"));
}

static void types_that_are_not_trained(void **state)
{
    struct rb_writer w;

    (void)state;
    rb_writer_init(&w, "half", 1);
    rb_writer_input(&w, "x", RB_F16, 2, DIMS(-1, 4));
    write_model(&w, rb_writer_node(&w, "Relu", "y", "x", NULL), "half.onnx");
    expect(4, "", "'x' is float16, and only float32 models are trained: model.float()",
           WORDS("model", "check", "half.onnx"));
    rb_writer_init(&w, "narrow", 1);
    rb_writer_input(&w, "x", RB_U16, 2, DIMS(-1, 4));
    write_model(&w, rb_writer_node(&w, "Relu", "y", "x", NULL), "narrow.onnx");
    expect(4, "", "'x' is uint16, and data are taken as float32, int64, int32, uint8 or bool",
           WORDS("model", "check", "narrow.onnx"));
    start(&w, 1);
    rb_writer_node(&w, "ArgMax", "y", "h", NULL);
    write_model(&w, "y", "index.onnx");
    expect(4, "", "first output, 'y', is int64, and a loss is one of float32",
           WORDS("model", "check", "index.onnx"));
}

/* A language model is timed under the loss that it is trained with. */
static void classes_have_their_loss(void **state)
{
    (void)state;
    expect(0, "", "lm.onnx",
           WORDS("model", "new", "gpt", "--set", "layers=1", "--set", "width=16", "--set",
                 "heads=2", "--set", "seq=8", "--set", "vocab=8", "--out", "lm.onnx"));
    expect(0, "CrossEntropyGrad", "", WORDS("profile", "lm.onnx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_inputs),
        cmocka_unit_test(axes_of_no_size),
        cmocka_unit_test(types_that_are_not_trained),
        cmocka_unit_test(classes_have_their_loss),
        cmocka_unit_test(outputs_have_the_names_of_the_file),
        cmocka_unit_test(weights_from_another_file),
        cmocka_unit_test(exponents_before_opset_7),
        cmocka_unit_test(labels_are_an_input_like_any_other),
        cmocka_unit_test(outputs_without_a_batch),
        cmocka_unit_test(a_file_for_each_input),
        cmocka_unit_test(files_of_other_types),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
