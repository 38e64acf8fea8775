/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs of models against models written by hand: what they say is what a submit would do. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "graph/models/writer.h"
#include "tests/ctl/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DIMS(...)  ((int64_t[]){__VA_ARGS__})

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

/* Exit code, a part of stdout and one of stderr. */
static void expect(int code, const char *out, const char *err, const char *const *words)
{
    struct outcome outcome = fake_run(&fake, words);

    if (outcome.code != code || !strstr(outcome.out, out) || !strstr(outcome.err, err))
        fail_msg("%s %s: exit %d, not %d, or not '%s' and '%s':\n%s%s", words[0], words[1],
                 outcome.code, code, out, err, outcome.out, outcome.err);
    outcome_done(&outcome);
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

/* An axis of this name, of no size of its own. */
static void free_axis(struct rb_writer *w, int input, int axis, const char *name)
{
    Onnx__TensorShapeProto__Dimension *dim =
        w->graph.input[input]->type->tensor_type->shape->dim[axis];

    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    dim->dim_param = rb_arena_string(&w->arena, name);
}

/* ---- model run ---- */

static void a_file_for_each_input(void **state)
{
    const float x[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, 30, 40, 50, 60};
    const float want[] = {10, 40, 90, 160, 250, 360};
    const uint8_t mask[] = {1, 0, 1, 1, 0, 1};
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/result/z.npy", fake.folder);
    RB_CLEANUP(rb_buffer_done) struct rb_buffer got = {0};
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
    assert_int_equal(rb_file_read(path, 1 << 20, &got, NULL), 0);
    assert_int_equal(got.size, 128 + sizeof want);
    assert_memory_equal(got.data + 128, want, sizeof want);

    rb_writer_init(&w, "chosen", 1);
    rb_writer_input(&w, "mask", RB_BOOL, 2, DIMS(-1, 3));
    rb_writer_input(&w, "x", RB_F32, 2, DIMS(-1, 3));
    rb_writer_input(&w, "y", RB_F32, 2, DIMS(-1, 3));
    write_model(&w, rb_writer_node(&w, "Where", "z", "mask", "x", "y", NULL), "chosen.onnx");
    expect(0, "result/z.npy", "",
           WORDS("model", "run", "chosen.onnx", "--input", "x=x.npy", "--input", "y=y.npy",
                 "--input", "mask=mask.npy", "--out", "result"));
    rb_buffer_clear(&got);
    assert_int_equal(rb_file_read(path, 1 << 20, &got, NULL), 0);
    for (int i = 0; i < 6; i++)
        assert_memory_equal(got.data + 128 + 4 * i, mask[i] ? &x[i] : &y[i], 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_for_each_input),
    };

    return cmocka_run_group_tests(tests, begin, end);
}
