/* SPDX-License-Identifier: Apache-2.0 */
/* The public ONNX test models: each is imported, or refused with a sentence that says what and why.
 */
#include "tests/graph/help.h"

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#define DATA "/usr/share/libonnx-testdata/data"

static int imported, refused;

static void try(const char *path)
{
    struct rb_import_options options = {.train = true};
    struct rb_onnx *model = NULL;
    struct rb_graph *graph = NULL;
    struct rb_why why = {0};
    int err = rb_onnx_open(path, 0, &model, &why);
    bool says;

    if (!err)
        err = rb_onnx_import(model, &options, &graph, &why);
    rb_onnx_close(model);
    if (!err) {
        assert_true(graph->n_outputs > 0);
        free(take_text(graph));
        imported++;
        return;
    }
    refused++;
    says = !strncmp(why.text, "node '", 6) || !strncmp(why.text, "input '", 7) ||
           !strncmp(why.text, "output '", 8) || strstr(why.text, "opset") ||
           strstr(why.text, "sparse initializers") || !strcmp(why.text, "the model has no input");
    if (!says)
        fail_msg("%s: '%s' does not say what cannot be imported", path, why.text);
}

static void try_folder(const char *name)
{
    char path[1024];
    struct dirent *entry;
    DIR *folder;

    snprintf(path, sizeof path, DATA "/%s", name);
    folder = opendir(path);
    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        snprintf(path, sizeof path, DATA "/%s/%s/model.onnx", name, entry->d_name);
        if (entry->d_name[0] != '.' && access(path, R_OK) == 0)
            try(path);
    }
    closedir(folder);
}

/* 357 are imported today (of libonnx-testdata 1.12.0): a lower number is a loss. */
static void public_models(void **state)
{
    try_folder("node");
    try_folder("simple");
    try_folder("pytorch-operator");
    try_folder("pytorch-converted");
    printf("%d imported, %d refused\n", imported, refused);
    assert_true(imported >= 357);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(public_models)};

    if (access(DATA "/node", R_OK) != 0)
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
