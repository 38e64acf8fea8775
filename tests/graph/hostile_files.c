/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are no models, and models whose tensors lie in other files: nothing is read that is
 * not part of the model. */
#include "base/file.h"
#include "tests/graph/help.h"

#include <stdio.h>
#include <unistd.h>

struct folder {
    char path[64], model[96], data[96];
};

static void make_folder(struct folder *folder)
{
    strcpy(folder->path, "/tmp/rubato-graph-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->model, sizeof folder->model, "%s/m.onnx", folder->path);
    snprintf(folder->data, sizeof folder->data, "%s/m.data", folder->path);
}

/* y = x + w, w's contents at `location`. */
static int import_external(const struct folder *folder, const char *location, const char *offset,
                           struct rb_why *why)
{
    Onnx__StringStringEntryProto entries[2] = {ONNX__STRING_STRING_ENTRY_PROTO__INIT,
                                               ONNX__STRING_STRING_ENTRY_PROTO__INIT};
    Onnx__StringStringEntryProto *list[2] = {&entries[0], &entries[1]};
    struct rb_import_options options = {.batch = 1};
    struct rb_buffer bytes = {0};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    Onnx__TensorProto *tensor;
    struct rb_writer w;
    int err;

    start_writer(&w, 2, (int64_t[]){-1, 4});
    rb_writer_weight(&w, "w", 1, (int64_t[]){4}, RB_INIT_ONE, 0);
    rb_writer_node(&w, "Add", "y", "x", "w", NULL);
    tensor = w.graph.initializer[0];
    tensor->has_raw_data = 0;
    tensor->has_data_location = 1;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    entries[0].key = (char *)(uintptr_t) "location";
    entries[0].value = (char *)(uintptr_t)location;
    entries[1].key = (char *)(uintptr_t) "offset";
    entries[1].value = (char *)(uintptr_t)offset;
    tensor->n_external_data = 2;
    tensor->external_data = list;
    assert_int_equal(rb_writer_finish(&w, &bytes, why), 0);
    rb_writer_done(&w);
    assert_int_equal(rb_file_write(folder->model, bytes.data, bytes.size, why), 0);
    rb_buffer_done(&bytes);
    err = rb_onnx_open(folder->model, 0, &model, why);
    if (!err)
        err = rb_onnx_import(model, &options, &graph, why);
    rb_onnx_close(model);
    if (!err)
        assert_memory_equal(graph->values[1]->data, ((float[]){1, 2, 3, 4}), 16);
    rb_graph_free(graph);
    return err;
}

static void external_data(void **state)
{
    struct rb_why why = {0};
    struct folder folder;
    char link[96];

    make_folder(&folder);
    snprintf(link, sizeof link, "%s/link", folder.path);
    assert_int_equal(rb_file_write(folder.data, ((float[]){0, 1, 2, 3, 4}), 20, &why), 0);
    assert_int_equal(symlink("m.data", link), 0);
    assert_int_equal(import_external(&folder, "m.data", "4", &why), 0);
    assert_int_equal(import_external(&folder, "./m.data", "4", &why), 0);
    assert_int_equal(import_external(&folder, "././m.data", "4", &why), 0);
    assert_int_equal(import_external(&folder, "./../m.data", "4", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, "./", "4", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, ".//m.data", "4", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, "m.data", "8", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "lie outside"));
    assert_int_equal(import_external(&folder, "m.data", "-4", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, "m.data", "18446744073709551615", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, folder.data, "4", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "right beside the model"));
    assert_int_equal(import_external(&folder, "../m.data", "4", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, "..", "0", &why), RB_EINVAL);
    assert_int_equal(import_external(&folder, "link", "4", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "symbolic link"));
    assert_int_equal(import_external(&folder, "none", "4", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "in a file of their own"));
    assert_int_equal(import_external(&folder, "\x1b[31m", "4", &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "'?[31m'"));
    assert_int_equal(rb_file_remove(folder.path, &why), 0);
}

/* Files that users mistake for a model: the message says what the file is, and what to do
 * instead. */
static void other_files(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        {"", 0, "the file is empty"},
        {"PK\3\4\0\0\x08\x08", 8, "no ONNX model but what torch.save writes: export the module"},
        {"\x80\2\x8a\x0al\xfc", 6, "what torch.save writes"}, /* before torch 1.6 */
        {"\2\0\0\0\0\0\0\0{}", 10, "safetensors, which are weights without a model"},
        {"\2\0\0\0\0\0\0\1{}", 10, "protobuf"},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        RB_CLEANUP(rb_buffer_done) struct rb_buffer bytes = {0};
        struct rb_onnx *model = NULL;
        struct rb_why why = {0};

        rb_buffer_add(&bytes, cases[i].bytes, cases[i].size);
        assert_int_equal(rb_onnx_open_bytes(bytes.data, bytes.size, &model, &why), RB_EINVAL);
        if (!strstr(why.text, cases[i].says))
            fail_msg("%s", why.text);
    }
}

static void files(void **state)
{
    struct rb_onnx *model = NULL;
    struct rb_why why = {0};
    struct folder folder;

    make_folder(&folder);
    assert_int_equal(rb_onnx_open(folder.model, 0, &model, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, folder.model));
    assert_int_equal(rb_onnx_open(folder.path, 0, &model, &why), RB_EINVAL);
    assert_int_equal(rb_file_write(folder.model, "hello, world", 12, &why), 0);
    assert_int_equal(rb_onnx_open(folder.model, 0, &model, &why), RB_EINVAL);
    assert_non_null(strstr(why.text, "no ONNX model"));
    assert_int_equal(rb_onnx_open(folder.model, 5, &model, &why), RB_ELIMIT);
    assert_null(model);
    assert_int_equal(rb_file_remove(folder.path, &why), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(external_data),
        cmocka_unit_test(other_files),
        cmocka_unit_test(files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
