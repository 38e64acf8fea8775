/* SPDX-License-Identifier: Apache-2.0 */
/* Importing generated models, against golden text. */
#include "base/file.h"
#include "graph/models/models.h"
#include "tests/graph/help.h"

#include <stdio.h>

static void golden(const char *file, const char *kind, const char *const *settings, int n,
                   bool train)
{
    struct rb_import_options options = {.batch = 2, .train = train};
    struct rb_buffer bytes = {0}, want = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    char *text;

    assert_int_equal(rb_models_new(kind, settings, n, &bytes, &why), 0);
    assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), 0);
    assert_int_equal(rb_onnx_import(model, &options, &graph, &why), 0);
    rb_onnx_close(model); /* the graph keeps what it borrows */
    rb_buffer_done(&bytes);
    text = take_text(graph);
    if (getenv("RB_GOLDEN_WRITE"))
        assert_int_equal(rb_file_write(file, text, strlen(text), &why), 0);
    assert_int_equal(rb_file_read(file, 1 << 20, &want, &why), 0);
    if (strcmp(text, want.data) != 0)
        fail_msg("%s differs (RB_GOLDEN_WRITE=1 writes it anew); it is:\n%s", file, text);
    free(text);
    rb_buffer_done(&want);
}

static void gpt_train(void **state)
{
    const char *const settings[] = {"vocab=16", "layers=1", "width=8",
                                    "heads=2",  "seq=4",    "dropout=0.1"};

    golden(GOLDEN "/gpt-train.txt", "gpt", settings, 6, true);
}

static void gpt_eval(void **state)
{
    const char *const settings[] = {"vocab=16", "layers=1", "width=8",
                                    "heads=2",  "seq=4",    "dropout=0.1"};

    golden(GOLDEN "/gpt-eval.txt", "gpt", settings, 6, false);
}

static void mlp_train(void **state)
{
    const char *const settings[] = {"inputs=6", "hidden=5", "depth=2", "classes=3"};

    golden(GOLDEN "/mlp-train.txt", "mlp", settings, 4, true);
}

static void cnn_train(void **state)
{
    const char *const settings[] = {"image=8", "channels=1", "batchnorm=1", "dropout=0.25"};

    golden(GOLDEN "/cnn-train.txt", "cnn", settings, 4, true);
}

static void cnn_eval(void **state)
{
    const char *const settings[] = {"image=8", "channels=1", "batchnorm=1", "dropout=0.25"};

    golden(GOLDEN "/cnn-eval.txt", "cnn", settings, 4, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_train), cmocka_unit_test(gpt_eval), cmocka_unit_test(mlp_train),
        cmocka_unit_test(cnn_train), cmocka_unit_test(cnn_eval),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
