/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as users have them: halves, shards, more tensors than the model has and fewer, shared
 * ones. */
#include "base/arena.h"
#include "base/file.h"
#include "graph/models/writer.h"
#include "plan/compile/compile.h"
#include "proto/safetensors.h"
#include "proto/spec.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INPUTS = 6, CLASSES = 3, SAMPLES = 8 };

static char folder[] = "/tmp/rubato-weights-XXXXXX";

static void save(const char *name, const void *bytes, size_t size)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);

    assert_int_equal(rb_file_write(path, bytes, size, NULL), 0);
}

static void save_npy(const char *name, const char *descr, const char *shape, const void *bytes,
                     size_t size)
{
    char file[128 + SAMPLES * INPUTS * sizeof(float)] = "\x93NUMPY\x01\x00\x76\x00";

    memset(file + 10, ' ', 118);
    file[10 + snprintf(file + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                       descr, shape)] = ' ';
    file[127] = '\n';
    memcpy(file + 128, bytes, size);
    save(name, file, 128 + size);
}

/* features a.weight b.weight head.weight + head.bias, b.weight being another name of a.weight, as
 * exporters write parameters that are equal. */
static void save_model(void)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    const char *a, *x;
    struct rb_writer w;

    rb_writer_init(&w, "net", 3);
    rb_writer_input(&w, "features", RB_F32, 2, (int64_t[]){-1, INPUTS});
    a = rb_writer_weight(&w, "a.weight", 2, (int64_t[]){INPUTS, INPUTS}, RB_INIT_NORMAL, 0.1);
    rb_writer_node(&w, "Identity", "b.weight", a, NULL);
    rb_writer_node(&w, "Identity", "/b/Identity.output", "b.weight", NULL); /* no module's */
    x = rb_writer_node(&w, "MatMul", "first", "features", a, NULL);
    x = rb_writer_node(&w, "MatMul", "second", x, "/b/Identity.output", NULL);
    a = rb_writer_weight(&w, "head.weight", 2, (int64_t[]){INPUTS, CLASSES}, RB_INIT_NORMAL, 0.1);
    x = rb_writer_node(&w, "MatMul", "third", x, a, NULL);
    a = rb_writer_weight(&w, "head.bias", 1, (int64_t[]){CLASSES}, RB_INIT_ZERO, 0);
    rb_writer_node(&w, "Add", "logits", x, a, NULL);
    rb_writer_output(&w, "logits", 2, (int64_t[]){-1, CLASSES});
    assert_int_equal(rb_writer_finish(&w, &onnx, NULL), 0);
    rb_writer_done(&w);
    save("net.onnx", onnx.data, onnx.size);
}

static int set_up(void **state)
{
    float x[SAMPLES * INPUTS] = {0};
    int64_t y[SAMPLES] = {0};

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    save_model();
    save_npy("x.npy", "<f4", "8, 6", x, sizeof(x));
    save_npy("y.npy", "<i8", "8,", y, sizeof(y));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rb_file_remove(folder, NULL);
}

/* ---- Jobs with a file of weights ---- */

static int compile(const char *weights, struct rb_compiled *ret, struct rb_why *why)
{
    static const char job[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: t}\n"
                              "spec:\n"
                              "  model: {onnx: net.onnx}\n"
                              "  data: {train: {path: x.npy, targets: y.npy}}\n"
                              "  train: {steps: 1, globalBatch: 8}\n";
    RB_CLEANUP(rb_freep) char *set = rb_format("spec.model.weights=%s", weights);
    const char *overrides[] = {set};
    Rb__JobFile *file = NULL;
    int err;

    assert_int_equal(rb_spec_parse("job.yaml", folder, job, strlen(job), overrides, 1, &file, why),
                     0);
    err = rb_compile(file->spec, "test", ret, why);
    rb__job_file__free_unpacked(file, NULL);
    return err;
}

static struct rb_compiled must_compile(const char *weights)
{
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};

    if (compile(weights, &compiled, &why))
        fail_msg("%s: %s", weights, why.text);
    return compiled;
}

static void must_refuse(const char *weights, const char *part)
{
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};

    if (!compile(weights, &compiled, &why))
        fail_msg("%s was taken", weights);
    if (!strstr(why.text, part) || !strstr(why.text, "spec.model.weights"))
        fail_msg("'%s' does not say '%s'", why.text, part);
}

static void save_tensors(const char *name, struct rb_safetensor *tensors, int n,
                         const struct rb_safetensor_note *notes, int n_notes)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(rb_safetensors_write(fd, tensors, n, notes, n_notes, NULL, NULL), 0);
    close(fd);
}

static void assert_starts(const struct rb_compiled *compiled, const char *name, const void *data)
{
    struct rb_safetensor *tensors = NULL;
    int n = 0, i = 0;

    assert_int_equal(
        rb_safetensors_read(compiled->weights.data, compiled->weights.size, &tensors, &n, NULL), 0);
    while (i < n && strcmp(tensors[i].name, name) != 0)
        i++;
    assert_true(i < n);
    assert_int_equal(tensors[i].type.dtype, RB_F32);
    assert_memory_equal(tensors[i].data, data,
                        (size_t)rb_tensor_elements(&tensors[i].type) * sizeof(float));
    free(tensors);
}

static void assert_says(const struct rb_compiled *compiled, const char *part)
{
    if (!compiled->notes.data || !strstr(compiled->notes.data, part))
        fail_msg("'%s' does not say '%s'", compiled->notes.data, part);
}

#define BIAS(kind, bytes)                                                                          \
    {                                                                                              \
        "head.bias", {kind, 1, {CLASSES}}, bytes                                                   \
    }
#define SQUARE(name, bytes)                                                                        \
    {                                                                                              \
        name, {RB_F32, 2, {INPUTS, INPUTS}}, bytes                                                 \
    }

/* Numbers for the square weights. */
static float square[INPUTS * INPUTS], other[INPUTS * INPUTS];

static void fill_squares(void)
{
    for (int i = 0; i < INPUTS * INPUTS; i++) {
        square[i] = (float)i / 7.0f;
        other[i] = square[i] + (i == 35);
    }
}

/* ---- Types ---- */

static void become_float32(void **state)
{
    static const uint16_t half[] = {0x3c01, 0xc000, 0x0001}, bfloat[] = {0x3f81, 0xc000, 0x0001};
    static const double wide[] = {0.1, 1.0 + 0x1p-24 + 0x1p-50, -2};
    static const float ones[] = {1.0f + 0x1p-10f, -2, 0x1p-24f},
                       twos[] = {1.0078125f, -2, 0x1p-133f}, threes[] = {0.1f, 1.0f + 0x1p-23f, -2};
    static const int64_t whole[] = {1, 2, 3};
    static const struct {
        enum rb_dtype dtype;
        const void *from;
        const float *to;
    } cases[] = {{RB_F16, half, ones}, {RB_BF16, bfloat, twos}, {RB_F64, wide, threes}};
    struct rb_safetensor integers[] = {BIAS(RB_I64, whole)};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_safetensor tensors[] = {BIAS(cases[i].dtype, cases[i].from)};
        struct rb_compiled compiled;

        save_tensors("types.safetensors", tensors, 1, NULL, 0);
        compiled = must_compile("types.safetensors");
        assert_starts(&compiled, "head.bias", cases[i].to);
        rb_compiled_done(&compiled);
    }
    save_tensors("types.safetensors", integers, 1, NULL, 0);
    must_refuse("types.safetensors", "integers");
}

/* ---- More and less than the model has ---- */

static void says_what_is_left_out(void **state)
{
    static const float bias[] = {1, 2, 3};
    static const int64_t count[] = {7};
    struct rb_safetensor some[] = {BIAS(RB_F32, bias),
                                   {"bn.num_batches_tracked", {RB_I64, 0, {0}}, count},
                                   {"aux.1", {RB_F32, 0, {0}}, bias},
                                   {"aux.2", {RB_F32, 0, {0}}, bias},
                                   {"aux.3", {RB_F32, 0, {0}}, bias},
                                   {"aux.\n4", {RB_F32, 0, {0}}, bias}};
    struct rb_safetensor all[] = {BIAS(RB_F32, bias),
                                  SQUARE("a.weight", square),
                                  {"head.weight", {RB_F32, 2, {INPUTS, CLASSES}}, square},
                                  {"bn.num_batches_tracked", {RB_I64, 0, {0}}, count}};
    struct rb_compiled compiled;

    (void)state;
    save_tensors("some.safetensors", some, 6, NULL, 0);
    compiled = must_compile("some.safetensors");
    assert_says(&compiled,
                "the model lacks 4 of the file's tensors: aux.?4, aux.1, aux.2 and 1 more\n");
    assert_says(&compiled, "the file lacks 2 of the model's weights");
    assert_says(&compiled, ": a.weight, head.weight\n");
    assert_null(strstr(compiled.notes.data, "num_batches"));
    rb_compiled_done(&compiled);
    save_tensors("all.safetensors", all, 4, NULL, 0);
    compiled = must_compile("all.safetensors");
    assert_int_equal(compiled.notes.size, 0);
    rb_compiled_done(&compiled);
}

static void must_fit(void **state)
{
    static const float bias[] = {1, 2, 3};
    struct rb_safetensor longer[] = {{"head.bias", {RB_F32, 2, {1, CLASSES}}, bias}};
    struct rb_safetensor alien[] = {{"module.head.bias", {RB_F32, 1, {CLASSES}}, bias}};

    (void)state;
    save_tensors("longer.safetensors", longer, 1, NULL, 0);
    must_refuse("longer.safetensors", "'head.bias' is float32[1,3], and the model's is float32[3]");
    save_tensors("alien.safetensors", alien, 1, NULL, 0);
    must_refuse("alien.safetensors",
                "not one of its 1 tensors is the model's: it has 'module.head.bias', the model "
                "'a.weight'; without 'module.' 1 fit: take it off their names");
    save_tensors("none.safetensors", NULL, 0, NULL, 0);
    must_refuse("none.safetensors", "no tensors");
    save("bytes.safetensors", "", 0);
    must_refuse("bytes.safetensors", "too short");
}

/* ---- One tensor under several names ---- */

static void assert_aliases(const struct rb_compiled *compiled, const char *names)
{
    char all[100] = "";

    for (size_t i = 0; i < compiled->model->n_aliases; i++) {
        assert_string_equal(compiled->model->aliases[i]->kept, "a.weight");
        strcat(strcat(all, compiled->model->aliases[i]->name), " ");
    }
    assert_string_equal(all, names);
}

static void shared_under_any_name(void **state)
{
    static const struct rb_safetensor_note notes[] = {
        {"a.weight", "c.weight"}, {"d.weight", "c.weight"}, {"format", "pt"}};
    struct rb_safetensor second[] = {SQUARE("b.weight", square)};
    struct rb_safetensor both[] = {SQUARE("a.weight", square), SQUARE("b.weight", square)};
    struct rb_safetensor differ[] = {SQUARE("a.weight", square), SQUARE("b.weight", other)};
    struct rb_safetensor third[] = {SQUARE("c.weight", square)};
    struct rb_compiled compiled;

    (void)state;
    save_tensors("second.safetensors", second, 1, NULL, 0);
    compiled = must_compile("second.safetensors");
    assert_starts(&compiled, "a.weight", square);
    assert_aliases(&compiled, "b.weight ");
    rb_compiled_done(&compiled);

    save_tensors("both.safetensors", both, 2, NULL, 0);
    compiled = must_compile("both.safetensors");
    assert_null(strstr(compiled.notes.data, "b.weight"));
    rb_compiled_done(&compiled);
    save_tensors("differ.safetensors", differ, 2, NULL, 0);
    must_refuse("differ.safetensors", "'a.weight' and 'b.weight' differ");

    save_tensors("third.safetensors", third, 1, notes, 3);
    compiled = must_compile("third.safetensors");
    assert_starts(&compiled, "a.weight", square);
    assert_aliases(&compiled, "b.weight c.weight d.weight ");
    rb_compiled_done(&compiled);
}

/* ---- Folders and indices ---- */

static void save_index(const char *name, const char *where)
{
    RB_CLEANUP(rb_freep)
    char *text = rb_format("{\"metadata\":{\"total_size\":1},\"weight_map\":{"
                           "\"head.bias\":\"one.safetensors\",\"a.weight\":\"%s\"}}",
                           where);

    save(name, text, strlen(text));
}

static void several_files(void **state)
{
    static const float bias[] = {1, 2, 3}, stale[] = {4, 5, 6};
    static const char *const weights[] = {"shards", "shards/model.safetensors.index.json"};
    struct rb_safetensor one[] = {BIAS(RB_F32, bias)};
    struct rb_safetensor two[] = {SQUARE("a.weight", square), BIAS(RB_F32, stale)};
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/shards", folder);
    struct rb_compiled compiled;

    (void)state;
    mkdir(path, 0700);
    must_refuse("shards", "neither model.safetensors nor");
    save_tensors("shards/one.safetensors", one, 1, NULL, 0);
    save_tensors("shards/two.safetensors", two, 2, NULL, 0);
    save_index("shards/model.safetensors.index.json", "two.safetensors");
    for (int i = 0; i < 2; i++) {
        compiled = must_compile(weights[i]);
        assert_starts(&compiled, "a.weight", square);
        assert_starts(&compiled, "head.bias", bias); /* where the index has it */
        rb_compiled_done(&compiled);
    }
    save_tensors("shards/model.safetensors", two, 2, NULL, 0);
    compiled = must_compile("shards");
    assert_starts(&compiled, "head.bias", stale);
    rb_compiled_done(&compiled);
}

static void hostile_indices(void **state)
{
    static const char *const names[][2] = {
        {"../two.safetensors", "right beside"},
        {"/etc/passwd", "right beside"},
        {"..", "right beside"},
        {"", "right beside"},
        {"a\\nb", "control characters"},
        {"absent.safetensors", "absent.safetensors"},
        {"one.safetensors", "1 of its 2 tensors are not in the files"},
        {"text.safetensors", "text.safetensors: not a safetensors file"},
    };
    static const float bias[] = {1, 2, 3};
    struct rb_safetensor one[] = {BIAS(RB_F32, bias)};

    (void)state;
    save_tensors("one.safetensors", one, 1, NULL, 0);
    save("text.safetensors", "no tensors here", 15);
    for (size_t i = 0; i < RB_COUNT(names); i++) {
        save_index("bad.json", names[i][0]);
        must_refuse("bad.json", names[i][1]);
    }
    save("bad.json", "[]", 2);
    must_refuse("bad.json", "no weight_map");
    save("bad.json", "{\"weight_map\":{\"a\":1}}", 22);
    must_refuse("bad.json", "more than names");
    save("bad.json", "{", 1);
    must_refuse("bad.json", "not JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(become_float32), cmocka_unit_test(says_what_is_left_out),
        cmocka_unit_test(must_fit),       cmocka_unit_test(shared_under_any_name),
        cmocka_unit_test(several_files),  cmocka_unit_test(hostile_indices),
    };

    fill_squares();
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
