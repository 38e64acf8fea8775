/* SPDX-License-Identifier: Apache-2.0 */
/* Generated models, without a rubatod: made, checked, run and timed. */
#include "base/buffer.h"
#include "base/file.h"
#include "tests/ctl/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* With zeros as inputs all rows are the same, but for the order in which a product adds them up. */
static void expect_equal_rows(const char *bytes, size_t rows, size_t columns)
{
    float values[40 * 10];

    assert_true(rows * columns <= sizeof values / sizeof values[0]);
    memcpy(values, bytes, rows * columns * sizeof values[0]);
    for (size_t i = columns; i < rows * columns; i++)
        assert_float_equal(values[i], values[i % columns], 1e-6);
}

static void test_models(void **state)
{
    static const struct fake_reply none[] = {{0}};
    static const char npy[] =
        "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': "
        "(40, 4), }";
    struct rb_buffer file = {0};
    struct fake fake;
    char path[100];
    json_t *json;

    (void)state;
    fake_start(&fake, none);
    cli_expect(
        &fake, 0, "", "m.onnx",
        WORDS("model", "new", "mlp", "--set", "inputs=4", "--set", "hidden=8", "--out", "m.onnx"));
    cli_expect(&fake, 4, "", "nope", WORDS("model", "new", "mlp", "--set", "nope=4", "--out", "n"));
    cli_expect(&fake, 4, "", "xyz", WORDS("model", "new", "xyz", "--out", "n"));
    cli_expect(&fake, 0, "will be trained", "", WORDS("model", "check", "m.onnx"));
    json = cli_run_json(&fake, WORDS("model", "check", "m.onnx", "-o", "json"));
    assert_true(json_is_true(json_object_get(json, "trainable")));
    json_decref(json);
    cli_put(&fake, "noise.onnx", "this is no model");
    cli_expect(&fake, 4, "", "noise.onnx", WORDS("model", "check", "noise.onnx"));
    cli_expect(&fake, 3, "", "none.onnx", WORDS("model", "check", "none.onnx"));

    rb_buffer_add(&file, npy, sizeof npy - 1);
    while (file.size < 127)
        rb_buffer_text(&file, " ");
    rb_buffer_text(&file, "\n");
    memset(rb_buffer_reserve(&file, 640), 0, 640);
    file.size += 640;
    snprintf(path, sizeof path, "%s/x.npy", fake.folder);
    assert_int_equal(rb_file_write(path, file.data, file.size, NULL), 0);
    cli_expect(&fake, 0, "result/logits.npy", "",
               WORDS("model", "run", "m.onnx", "--input", "x.npy", "--out", "result"));
    rb_buffer_clear(&file);
    snprintf(path, sizeof path, "%s/result/logits.npy", fake.folder);
    assert_int_equal(rb_file_read(path, 1 << 20, &file, NULL), 0);
    assert_non_null(strstr(file.data + 10, "'shape': (40, 10), }"));
    assert_int_equal(file.size, 128 + 40 * 10 * 4);
    expect_equal_rows(file.data + 128, 40, 10);
    rb_buffer_done(&file);
    fake_stop(&fake);
}

/* The rows of `profile` add up, and products are counted: 2 x 5 samples x (4 x 8 + 8 x 3) forward
 * and for the weights, and 8 x 3 once more for the gradient that goes back. */
static void test_profile(void **state)
{
    static const struct fake_reply none[] = {{0}};
    json_t *json, *row;
    struct fake fake;
    double ms = 0;
    size_t i;

    (void)state;
    fake_start(&fake, none);
    cli_expect(&fake, 0, "", "m.onnx",
               WORDS("model", "new", "mlp", "--set", "inputs=4", "--set", "hidden=8", "--set",
                     "depth=1", "--set", "classes=3", "--out", "m.onnx"));
    json = cli_run_json(&fake, WORDS("profile", "m.onnx", "--batch", "5", "-o", "json"));
    assert_int_equal(json_integer_value(json_object_get(json, "batch")), 5);
    json_array_foreach(json_object_get(json, "operators"), i, row)
    {
        ms += json_number_value(json_object_get(row, "ms"));
        if (strcmp(json_string_value(json_object_get(row, "operator")), "MatMul") == 0)
            assert_true(json_number_value(json_object_get(row, "flops")) ==
                        2 * 5 * (2 * (4 * 8 + 8 * 3) + 8 * 3));
    }
    assert_true(i > 3 && ms > 0);
    assert_true(fabs(ms - json_number_value(json_object_get(json, "ms"))) < 1e-6 * ms);
    json_decref(json);
    cli_expect(&fake, 0, "ReluGrad", "", WORDS("profile", "m.onnx"));
    cli_expect(&fake, 3, "", "none.onnx", WORDS("profile", "none.onnx"));
    cli_expect(&fake, 2, "", "--batch goes with a model", WORDS("profile", "gpt", "--batch", "5"));
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models),
        cmocka_unit_test(test_profile),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
