/* SPDX-License-Identifier: Apache-2.0 */
/* Job files to Models: what is chosen, what is refused, and what changes the digest. */
#include "base/arena.h"
#include "base/file.h"
#include "graph/models/models.h"
#include "graph/models/writer.h"
#include "graph/onnx/onnx.h"
#include "plan/compile/compile.h"
#include "plan/compile/footprint.h"
#include "proto/operators.h"
#include "proto/safetensors.h"
#include "proto/spec.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/rubato-compile-XXXXXX";

static void save(const char *name, const void *bytes, size_t size)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    struct rb_why why = {0};

    if (rb_file_write(path, bytes, size, &why))
        fail_msg("%s", why.text);
}

static void save_model(const char *name, const char *kind, const char *const *settings, int n)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_why why = {0};

    if (rb_models_new(kind, settings, n, &onnx, &why))
        fail_msg("%s", why.text);
    save(name, onnx.data, onnx.size);
}

/* n floats or labels as .npy, after a first axis of `samples`. */
static void save_npy(const char *name, const char *descr, const char *shape, const void *bytes,
                     size_t size)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};
    char header[119];

    memset(header, ' ', sizeof(header));
    snprintf(header, sizeof(header), "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
             descr, shape);
    header[strlen(header)] = ' ';
    header[117] = '\n';
    rb_buffer_add(&file, "\x93NUMPY\x01\x00\x76\x00", 10);
    rb_buffer_add(&file, header, 118);
    rb_buffer_add(&file, bytes, size);
    save(name, file.data, file.size);
}

static void save_numbers(const char *prefix, const char *shape, int samples, int width, int classes)
{
    RB_CLEANUP(rb_freep) float *x = rb_alloc(sizeof(*x) * (size_t)(samples * width));
    RB_CLEANUP(rb_freep) int64_t *y = rb_alloc(sizeof(*y) * (size_t)samples);
    RB_CLEANUP(rb_freep) char *features = rb_format("%s.npy", prefix);
    RB_CLEANUP(rb_freep) char *labels = rb_format("%s-labels.npy", prefix);
    RB_CLEANUP(rb_freep) char *count = rb_format("%d,", samples);

    for (int i = 0; i < samples * width; i++)
        x[i] = (float)(i % 17) / 17.0f;
    for (int i = 0; i < samples; i++)
        y[i] = i % classes;
    save_npy(features, "<f4", shape, x, sizeof(*x) * (size_t)(samples * width));
    save_npy(labels, "<i8", count, y, sizeof(*y) * (size_t)samples);
}

static int set_up(void **state)
{
    static const char *const gpt[] = {"vocab=256", "layers=1", "width=16",
                                      "heads=2",   "seq=8",    "dropout=0.1"};
    static const char *const ascii[] = {"vocab=128", "layers=1", "width=16", "heads=2", "seq=8"};
    static const char *const longer[] = {"vocab=256", "layers=1", "width=16",
                                         "heads=2",   "seq=64",   "dropout=0.1"};
    static const char *const mlp[] = {"inputs=6", "hidden=8", "depth=2", "classes=3"};
    static const char *const cnn[] = {"image=8", "channels=1", "classes=3", "batchnorm=1",
                                      "dropout=0.25"};
    char text[1000];

    (void)state;
    if (!mkdtemp(folder))
        return -1;
    save_model("gpt.onnx", "gpt", gpt, 6);
    save_model("longer.onnx", "gpt", longer, 6);
    save_model("ascii.onnx", "gpt", ascii, 5);
    save_model("mlp.onnx", "mlp", mlp, 4);
    save_model("cnn.onnx", "cnn", cnn, 5);
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)('a' + i * i % 23);
    save("text.txt", text, sizeof(text));
    save_numbers("rows", "50, 6", 50, 6, 3);
    save_numbers("wide", "50, 7", 50, 7, 5);
    save_numbers("held", "7, 6", 7, 6, 3);
    save_numbers("images", "50, 8, 8", 50, 64, 3);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return rb_file_remove(folder, NULL);
}

static const char text_job[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: t}\n"
                               "spec:\n"
                               "  model: {onnx: gpt.onnx}\n"
                               "  data: {train: {path: text.txt, format: text}}\n"
                               "  train: {steps: 5, globalBatch: 30}\n";

static const char rows_job[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: t}\n"
                               "spec:\n"
                               "  model: {onnx: mlp.onnx}\n"
                               "  data:\n"
                               "    train: {path: rows.npy, targets: rows-labels.npy}\n"
                               "    eval: {path: held.npy, targets: held-labels.npy}\n"
                               "  train: {epochs: 2, globalBatch: 10, microBatch: 4}\n";

/* Of the devices that jobs are compiled for. */
static const char *class = "test";

/* Compile a job with overrides, which end with NULL. */
static int compile(const char *job, struct rb_compiled *ret, struct rb_why *why, ...)
{
    const char *overrides[8];
    Rb__JobFile *file = NULL;
    va_list list;
    int n = 0, err;

    va_start(list, why);
    while ((overrides[n] = va_arg(list, const char *)))
        n++;
    va_end(list);
    if (rb_spec_parse("job.yaml", folder, job, strlen(job), overrides, n, &file, why))
        fail_msg("%s", why->text);
    err = rb_compile(file->spec, class, ret, why);
    rb__job_file__free_unpacked(file, NULL);
    return err;
}

#define MUST_COMPILE(job, ret, ...)                                                                \
    do {                                                                                           \
        struct rb_why why_ = {0};                                                                  \
        if (compile(job, ret, &why_, __VA_ARGS__))                                                 \
            fail_msg("%s", why_.text);                                                             \
    } while (0)

#define MUST_REFUSE(code, part, job, ...)                                                          \
    do {                                                                                           \
        struct rb_why why_ = {0};                                                                  \
        struct rb_compiled none_ = {0};                                                            \
        assert_int_equal(compile(job, &none_, &why_, __VA_ARGS__), code);                          \
        if (!strstr(why_.text, part))                                                              \
            fail_msg("'%s' does not say '%s'", why_.text, part);                                   \
    } while (0)

static void assert_program(const Rb__Model *model, size_t i, const char *name, uint32_t batch,
                           bool train)
{
    assert_true(i < model->n_programs);
    assert_string_equal(model->programs[i]->name, name);
    assert_int_equal(model->programs[i]->batch, batch);
    assert_int_equal(model->programs[i]->train, train);
}

static void gpt(void **state)
{
    struct rb_compiled compiled;
    const Rb__Model *model;

    (void)state;
    MUST_COMPILE(text_job, &compiled, NULL);
    model = compiled.model;
    assert_int_equal(model->micro_batch, 3); /* 30 on up to 8 devices: at least 8 microbatches */
    assert_int_equal(compiled.microbatches, 10);
    assert_int_equal(model->n_programs, 1);
    assert_program(model, 0, "train b=3", 3, true);
    assert_int_equal(model->steps, 5);
    assert_int_equal(model->train->seq_len, 8);
    assert_int_equal(model->train->samples, 124);
    assert_string_equal(model->train->format, "text");
    assert_string_equal(model->numeric_class, "test");
    assert_int_equal(strlen(model->spec_digest), 32);
    assert_non_null(strstr(compiled.summary, "gpt.onnx: "));
    assert_non_null(strstr(compiled.summary, "batch 30 as 10 x 3"));
    for (size_t i = 0; i < model->n_variables; i++)
        assert_int_not_equal(model->variables[i]->role, RB__VARIABLE__ROLE__STATISTIC);
    rb_compiled_done(&compiled);
}

/* The same job, the same bytes. */
static void deterministic(void **state)
{
    RB_CLEANUP(rb_freep) uint8_t *packed[2] = {NULL};
    struct rb_compiled compiled[2];
    size_t size[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        MUST_COMPILE(text_job, &compiled[i], NULL);
        size[i] = rb__model__get_packed_size(compiled[i].model);
        packed[i] = rb_alloc(size[i]);
        rb__model__pack(compiled[i].model, packed[i]);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(packed[0], packed[1], size[0]);
    assert_int_equal(compiled[0].weights.size, compiled[1].weights.size);
    assert_memory_equal(compiled[0].weights.data, compiled[1].weights.data,
                        compiled[0].weights.size);
    free(packed[1]);
    rb_compiled_done(&compiled[0]);
    rb_compiled_done(&compiled[1]);
}

static void programs_for_every_size(void **state)
{
    struct rb_compiled compiled;

    (void)state;
    MUST_COMPILE(rows_job, &compiled, NULL);
    assert_int_equal(compiled.model->n_programs, 4);
    assert_program(compiled.model, 0, "train b=4", 4, true);
    assert_program(compiled.model, 1, "train b=2", 2, true);
    assert_program(compiled.model, 2, "eval b=4", 4, false);
    assert_program(compiled.model, 3, "eval b=3", 3, false);
    assert_int_equal(compiled.microbatches, 3);
    assert_int_equal(compiled.model->steps, 10);
    assert_int_equal(compiled.model->eval->samples, 7);
    assert_non_null(strstr(compiled.summary, "batch 10 as 2 x 4 + 2"));
    rb_compiled_done(&compiled);
}

static int count(const Rb__Program *program, enum rb_op op)
{
    int n = 0;

    for (size_t i = 0; i < program->n_instructions; i++)
        n += program->instructions[i]->operator_ == op;
    return n;
}

/* GPUs have it for nothing, CPUs keep it; whatever is trained or only asked. */
static void relu_of_products(void **state)
{
    struct rb_compiled compiled;

    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        class = gpu ? "cuda test" : "test";
        MUST_COMPILE(rows_job, &compiled, NULL);
        class = "test";
        for (size_t p = 0; p < compiled.model->n_programs; p++) {
            assert_int_equal(count(compiled.model->programs[p], RB_OP_RELU), gpu ? 0 : 2);
            assert_int_equal(count(compiled.model->programs[p], RB_OP_RELU_GRAD),
                             compiled.model->programs[p]->train ? 2 : 0);
        }
        rb_compiled_done(&compiled);
    }
}

/* The gradient draws the random numbers of what it is of. */
static void check_keys(const Rb__Program *program)
{
    uint32_t id = 0;

    for (size_t i = 0; i < program->n_instructions; i++) {
        const Rb__Instruction *one = program->instructions[i];

        if (one->operator_ == RB_OP_ATTENTION)
            id = one->id;
        for (size_t a = 0; one->operator_ == RB_OP_ATTENTION_GRAD && a < one->n_attributes; a++)
            if (!strcmp(one->attributes[a]->key, "key"))
                assert_int_equal(one->attributes[a]->ints[0], id);
    }
}

/* On a GPU of any size, on a core from so many keys on; there with bfloat16 where pairs of them are
 * multiplied. */
static void attention_in_one_node(void **state)
{
    static const struct {
        const char *class, *model, *precision;
        bool one;
    } cases[] = {{"test", "gpt.onnx", "fp32", false},
                 {"test avx2", "longer.onnx", "fp32", true},
                 {"test avx512_core", "longer.onnx", "fp32", true},
                 {"test sse41", "longer.onnx", "fp32", false},
                 {"test avx2", "longer.onnx", "bf16", false},
                 {"test avx512_core onednn", "longer.onnx", "bf16", false},
                 {"test avx512_core_bf16 onednn", "longer.onnx", "bf16", true},
                 {"test avx512_core_bf16 bf16-as-fp32 onednn", "longer.onnx", "bf16", false},
                 {"cuda test", "gpt.onnx", "fp32", true},
                 {"cuda test", "longer.onnx", "bf16", true}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        RB_CLEANUP(rb_freep) char *onnx = rb_format("spec.model.onnx=%s", cases[i].model);
        RB_CLEANUP(rb_freep)
        char *precision = rb_format("spec.train.precision=%s", cases[i].precision);
        struct rb_compiled compiled;

        class = cases[i].class;
        MUST_COMPILE(text_job, &compiled, onnx, precision, "spec.train.globalBatch=7",
                     "spec.train.microBatch=3", NULL);
        class = "test";
        assert_int_equal(compiled.model->n_programs, 2);
        for (size_t p = 0; p < compiled.model->n_programs; p++) {
            const Rb__Program *program = compiled.model->programs[p];

            assert_int_equal(count(program, RB_OP_ATTENTION), cases[i].one);
            assert_int_equal(count(program, RB_OP_ATTENTION_GRAD), cases[i].one);
            assert_int_equal(count(program, RB_OP_SOFTMAX), !cases[i].one);
            check_keys(program);
        }
        rb_compiled_done(&compiled);
    }
}

/* Queries of each sample look at keys and values that all samples share; or (among) samples are
 * queries, keys and values of each other. */
static void save_attention(const char *name, bool among)
{
    enum { INPUTS = 6, QUERIES = 3, KEYS = 5, WIDTH = 4 };
    const int64_t size = among ? WIDTH : QUERIES * WIDTH, swap[] = {0, 2, 1}, turn[] = {1, 0};
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *q, *k, *v, *x;

    rb_writer_init(&w, "attention", 3);
#define WEIGHT(name, ...)                                                                          \
    rb_writer_weight(&w, name, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                 \
                     (int64_t[]){__VA_ARGS__}, RB_INIT_NORMAL, 0.1)
    rb_writer_input(&w, "features", RB_F32, 2, (int64_t[]){-1, INPUTS});
    q = rb_writer_node(&w, "MatMul", "q", "features", WEIGHT("wq", INPUTS, size), NULL);
    if (among) {
        k = rb_writer_node(&w, "MatMul", "k", "features", WEIGHT("wk", INPUTS, size), NULL);
        v = rb_writer_node(&w, "MatMul", "v", "features", WEIGHT("wv", INPUTS, size), NULL);
    } else {
        x = rb_writer_constant_ints(&w, "rows", 3, (int64_t[]){-1, QUERIES, WIDTH});
        q = rb_writer_node(&w, "Reshape", "queries", q, x, NULL);
        k = WEIGHT("k", 1, KEYS, WIDTH);
        v = WEIGHT("v", 1, KEYS, WIDTH);
    }
    k = rb_writer_node(&w, "Transpose", "turned", k, NULL);
    rb_writer_ints(&w, "perm", among ? 2 : 3, among ? turn : swap);
    x = rb_writer_node(&w, "MatMul", "scores", q, k, NULL);
    x = rb_writer_node(&w, "Softmax", "p", x, NULL);
    rb_writer_int(&w, "axis", -1);
    x = rb_writer_dropout(&w, "dropped", x, 0.1);
    x = rb_writer_node(&w, "MatMul", "mixed", x, v, NULL);
    x = rb_writer_node(&w, "Flatten", "flat", x, NULL);
    rb_writer_node(&w, "MatMul", "logits", x, WEIGHT("out", size, 3), NULL);
#undef WEIGHT
    rb_writer_output(&w, "logits", 2, (int64_t[]){-1, 3});
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    save(name, onnx.data, onnx.size);
}

/* What is attention for one sample alone is none for any number: all programs are made alike.  And
 * where samples are keys, what pays for the whole microbatch is done for the rest. */
static void attention_that_depends_on_the_batch(void **state)
{
    static const struct {
        const char *class, *model, *global, *micro;
        bool one;
    } cases[] = {
        {"cuda test", "shared.onnx", "spec.train.globalBatch=5", "spec.train.microBatch=4", false},
        {"cuda test", "shared.onnx", "spec.train.globalBatch=3", "spec.train.microBatch=1", true},
        {"test avx2", "shared.onnx", "spec.train.globalBatch=5", "spec.train.microBatch=4", false},
        {"cuda test", "among.onnx", "spec.train.globalBatch=5", "spec.train.microBatch=4", true},
        {"test avx2", "among.onnx", "spec.train.globalBatch=5", "spec.train.microBatch=4", false},
        {"test avx2", "among.onnx", "spec.train.globalBatch=513", "spec.train.microBatch=512",
         true},
    };

    (void)state;
    save_attention("shared.onnx", false);
    save_attention("among.onnx", true);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        RB_CLEANUP(rb_freep) char *onnx = rb_format("spec.model.onnx=%s", cases[i].model);
        struct rb_compiled compiled;

        class = cases[i].class;
        MUST_COMPILE(rows_job, &compiled, onnx, cases[i].global, cases[i].micro, NULL);
        class = "test";
        for (size_t p = 0; p < compiled.model->n_programs; p++) {
            const Rb__Program *program = compiled.model->programs[p];

            assert_int_equal(count(program, RB_OP_ATTENTION), cases[i].one);
            check_keys(program);
        }
        rb_compiled_done(&compiled);
    }
}

static int leave_whole(struct rb_graph **graph, const void *owner, struct rb_why *why)
{
    (void)graph;
    (void)owner;
    (void)why;
    return 0;
}

/* Parts of the rest's program too: the first part, of a whole microbatch, says it for all. */
static void attention_of_parts(void **state)
{
    static const struct rb_compile_part parts[] = {{.batch = 4, .parts = 2, .change = leave_whole},
                                                   {.batch = 1, .parts = 2, .change = leave_whole}};
    const char *overrides[] = {"spec.model.onnx=shared.onnx", "spec.train.globalBatch=5",
                               "spec.train.microBatch=4"};
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};
    Rb__JobFile *file = NULL;

    (void)state;
    save_attention("shared.onnx", false);
    if (rb_spec_parse("job.yaml", folder, rows_job, strlen(rows_job), overrides,
                      RB_COUNT(overrides), &file, &why) ||
        rb_compile(file->spec, "cuda test", &compiled, &why) ||
        rb_compile_parts(file->spec, "cuda test", parts, RB_COUNT(parts), compiled.model, &why))
        fail_msg("%s", why.text);
    assert_true(compiled.model->n_programs >= 4);
    for (size_t p = 0; p < compiled.model->n_programs; p++)
        assert_int_equal(count(compiled.model->programs[p], RB_OP_ATTENTION), 0);
    rb__job_file__free_unpacked(file, NULL);
    rb_compiled_done(&compiled);
}

static void automatic_microbatch(void **state)
{
    static const struct {
        const char *batch, *most;
        int micro, count;
    } cases[] = {{"spec.train.globalBatch=32", "spec.devices.max=8", 4, 8},
                 {"spec.train.globalBatch=33", "spec.devices.max=8", 4, 9},
                 {"spec.train.globalBatch=15", "spec.devices.max=8", 1, 15},
                 {"spec.train.globalBatch=5", "spec.devices.max=8", 1, 5},
                 {"spec.train.globalBatch=32", "spec.devices.max=1", 32, 1}};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct rb_compiled compiled;

        MUST_COMPILE(rows_job, &compiled, cases[i].batch, cases[i].most,
                     "spec.train.microBatch=auto", "spec.data.eval=null", NULL);
        assert_int_equal(compiled.model->micro_batch, cases[i].micro);
        assert_int_equal(compiled.microbatches, cases[i].count);
        rb_compiled_done(&compiled);
    }
}

static void cnn(void **state)
{
    struct rb_compiled compiled;
    const Rb__Model *model;
    int statistics = 0, dropouts[2] = {0}, at[2] = {-1, -1};

    (void)state;
    MUST_COMPILE(rows_job, &compiled, "spec.model.onnx=cnn.onnx", "spec.data.train.path=images.npy",
                 "spec.data.train.targets=images-labels.npy", "spec.data.eval=null", NULL);
    model = compiled.model;
    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->role == RB__VARIABLE__ROLE__STATISTIC) {
            statistics++;
            assert_true(model->variables[i]->offset >= model->trained_elements);
            assert_false(model->variables[i]->decay);
        }
    assert_true(statistics >= 2);
    assert_int_equal(model->n_programs, 2);
    for (int p = 0; p < 2; p++)
        for (size_t i = 0; i < model->programs[p]->n_instructions; i++)
            if (model->programs[p]->instructions[i]->operator_ == RB_OP_DROPOUT) {
                dropouts[p]++;
                at[p] = (int)model->programs[p]->instructions[i]->id;
            }
    assert_true(dropouts[0] >= 1);
    assert_int_equal(dropouts[0], dropouts[1]);
    assert_int_equal(at[0], at[1]);
    rb_compiled_done(&compiled);
}

static const struct rb_safetensor *find(const struct rb_safetensor *tensors, int n,
                                        const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(tensors[i].name, name))
            return &tensors[i];
    fail_msg("no tensor '%s'", name);
    return NULL;
}

static const Rb__Variable *first_vector(const Rb__Model *model)
{
    for (size_t i = 0; i < model->n_variables; i++)
        if (model->variables[i]->n_dims == 1)
            return model->variables[i];
    fail_msg("no vector among the variables");
    return NULL;
}

static void weights(void **state)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer file = {0};
    float fresh[16] = {41, 42, 43, 44, 45, 46, 47, 48};
    struct rb_safetensor mine = {.type = {.dtype = RB_F32, .rank = 1}, .data = fresh}, *read;
    struct rb_compiled compiled, other;
    const Rb__Variable *vector;
    int n;

    (void)state;
    MUST_COMPILE(rows_job, &compiled, NULL);
    assert_int_equal(
        rb_safetensors_read(compiled.weights.data, compiled.weights.size, &read, &n, NULL), 0);
    assert_int_equal(n, compiled.model->n_variables);
    for (size_t i = 0; i < compiled.model->n_variables; i++)
        find(read, n, compiled.model->variables[i]->name);
    free(read);

    vector = first_vector(compiled.model);
    mine.name = vector->name;
    mine.type.dim[0] = (int64_t)vector->elements;
    assert_true(vector->elements <= RB_COUNT(fresh));
    rb_safetensors_header(&mine, 1, &file);
    rb_buffer_add(&file, fresh, vector->elements * sizeof(float));
    save("mine.safetensors", file.data, file.size);
    MUST_COMPILE(rows_job, &other, "spec.model.weights=mine.safetensors", NULL);
    assert_int_equal(rb_safetensors_read(other.weights.data, other.weights.size, &read, &n, NULL),
                     0);
    assert_memory_equal(find(read, n, vector->name)->data, fresh, vector->elements * sizeof(float));
    free(read);
    assert_string_not_equal(compiled.model->spec_digest, other.model->spec_digest);
    rb_compiled_done(&other);

    mine.type.dim[0]--;
    rb_buffer_clear(&file);
    rb_safetensors_header(&mine, 1, &file);
    rb_buffer_add(&file, fresh, (vector->elements - 1) * sizeof(float));
    save("short.safetensors", file.data, file.size);
    MUST_REFUSE(RB_EINVAL, vector->name, rows_job, "spec.model.weights=short.safetensors", NULL);
    mine.name = "nobody";
    rb_buffer_clear(&file);
    rb_safetensors_header(&mine, 1, &file);
    rb_buffer_add(&file, fresh, (vector->elements - 1) * sizeof(float));
    save("alien.safetensors", file.data, file.size);
    MUST_REFUSE(RB_EINVAL, "'nobody'", rows_job, "spec.model.weights=alien.safetensors", NULL);
    rb_compiled_done(&compiled);
}

static void freezing(void **state)
{
    struct rb_compiled compiled, frozen;
    int fixed = 0;

    (void)state;
    MUST_COMPILE(rows_job, &compiled, NULL);
    MUST_COMPILE(rows_job, &frozen, "spec.model.freeze=['*.bias']", NULL);
    assert_int_equal(compiled.model->n_variables, frozen.model->n_variables);
    for (size_t i = 0; i < frozen.model->n_variables; i++)
        fixed += frozen.model->variables[i]->role == RB__VARIABLE__ROLE__FIXED;
    assert_true(fixed > 0);
    assert_true(frozen.parameters < compiled.parameters);
    assert_true(frozen.model->fixed_bytes > 0);
    assert_string_not_equal(compiled.model->spec_digest, frozen.model->spec_digest);
    rb_compiled_done(&compiled);
    rb_compiled_done(&frozen);
    MUST_REFUSE(RB_EINVAL, "nothing to train", rows_job, "spec.model.freeze=['*']", NULL);
}

/* A row of bytes is one of numbers where the model takes floats, and of tokens where it does not.
 */
static void bytes_as_features(void **state)
{
    uint8_t rows[50 * 6] = {1, 2, 3};
    struct rb_compiled compiled;

    (void)state;
    save_npy("bytes.npy", "|u1", "50, 6", rows, sizeof(rows));
    MUST_COMPILE(rows_job, &compiled, "spec.data.train.path=bytes.npy", NULL);
    rb_compiled_done(&compiled);
    save_npy("shorts.npy", "<u2", "50, 3", rows, sizeof(rows));
    MUST_REFUSE(RB_EINVAL, "a sample is int64[3]", rows_job, "spec.data.train.path=shorts.npy",
                NULL);
}

/* A label that is no class, whether or not one that does not count lies beyond it. */
static void labels_that_are_no_classes(void **state)
{
    static const struct {
        int64_t odd[2];
        const char *ignore, *says; /* NULL: fine */
    } cases[] = {
        {{0, 1}, "spec.loss.ignoreIndex=-100", NULL},
        {{-100, 1}, "spec.loss.ignoreIndex=-100", NULL},
        {{-1, 1}, "spec.loss.ignoreIndex=-1", NULL},
        {{-1, 1}, "spec.loss.ignoreIndex=-100", "target -1 is in the data, and classes are 0 to 2"},
        {{-100, -1}, "spec.loss.ignoreIndex=-100", "say spec.loss.ignoreIndex: -1"},
        {{255, 1}, "spec.loss.ignoreIndex=255", NULL},
        {{255, 3}, "spec.loss.ignoreIndex=255", "target 3 is in the data"},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        int64_t labels[50] = {0, 2, 1};
        struct rb_compiled compiled;

        labels[20] = cases[i].odd[0];
        labels[30] = cases[i].odd[1];
        save_npy("odd.npy", "<i8", "50,", labels, sizeof(labels));
        if (cases[i].says) {
            MUST_REFUSE(RB_EINVAL, cases[i].says, rows_job, "spec.data.train.targets=odd.npy",
                        cases[i].ignore, NULL);
            continue;
        }
        MUST_COMPILE(rows_job, &compiled, "spec.data.train.targets=odd.npy", cases[i].ignore, NULL);
        rb_compiled_done(&compiled);
    }
}

/* What matches nothing was meant to match something. */
static void patterns_that_match_nothing(void **state)
{
    (void)state;
    MUST_REFUSE(RB_EINVAL, "spec.model.freeze: 'encoder.*' is no weight's name; the model's are ",
                rows_job, "spec.model.freeze=['*.bias', 'encoder.*']", NULL);
    MUST_REFUSE(RB_EINVAL, ".weight, ", rows_job, "spec.model.freeze=['encoder.*']", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.model.buffers: 'mask' is no weight's name", rows_job,
                "spec.model.buffers=[mask]", NULL);
}

#define MUST_NOTE(part, job, ...)                                                                  \
    do {                                                                                           \
        struct rb_compiled compiled_;                                                              \
        MUST_COMPILE(job, &compiled_, __VA_ARGS__);                                                \
        if (!compiled_.notes.data || !strstr(compiled_.notes.data, part))                          \
            fail_msg("'%s' does not say '%s'", compiled_.notes.data, part);                        \
        rb_compiled_done(&compiled_);                                                              \
    } while (0)

#define MUST_NOT_NOTE(job, ...)                                                                    \
    do {                                                                                           \
        struct rb_compiled compiled_;                                                              \
        MUST_COMPILE(job, &compiled_, __VA_ARGS__);                                                \
        if (compiled_.notes.size)                                                                  \
            fail_msg("%s", compiled_.notes.data);                                                  \
        rb_compiled_done(&compiled_);                                                              \
    } while (0)

/* y = sum or mean of (x * w)^2, times temperature. */
static void save_own_loss(const char *name, const char *reduce)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *x;

    rb_writer_init(&w, "own", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 6});
    x = rb_writer_weight(&w, "w.weight", 1, (int64_t[]){6}, RB_INIT_NORMAL, 0.1);
    x = rb_writer_node(&w, "Mul", "product", "x", x, NULL);
    x = rb_writer_node(&w, "Mul", "square", x, x, NULL);
    x = rb_writer_node(&w, "Mul", "hot", x,
                       rb_writer_weight(&w, "temperature", 0, NULL, RB_INIT_ONE, 0), NULL);
    rb_writer_node(&w, reduce, "loss", x, NULL);
    rb_writer_int(&w, "keepdims", 0);
    rb_writer_output(&w, "loss", 0, NULL);
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    save(name, onnx.data, onnx.size);
}

#define OWN "spec.loss.type=graph", "spec.data.train.targets=null", "spec.data.eval=null"

static void notes(void **state)
{
#define IMAGES                                                                                     \
    "spec.model.onnx=cnn.onnx", "spec.data.train.path=images.npy",                                 \
        "spec.data.train.targets=images-labels.npy", "spec.data.eval=null"
    (void)state;
    save_own_loss("sum.onnx", "ReduceSum");
    save_own_loss("mean.onnx", "ReduceMean");
    MUST_NOT_NOTE(rows_job, NULL);
    MUST_NOTE("temperature (one number); where it is one, say spec.model.buffers: [temperature]\n",
              rows_job, "spec.model.onnx=sum.onnx", OWN, NULL);
    MUST_NOTE("the model's own loss is a sum", rows_job, "spec.model.onnx=sum.onnx", OWN,
              "spec.model.buffers=[temperature]", NULL);
    MUST_NOT_NOTE(rows_job, "spec.model.onnx=sum.onnx", OWN, "spec.model.buffers=[temperature]",
                  "spec.train.microBatch=10", NULL);
    MUST_NOT_NOTE(rows_job, "spec.model.onnx=mean.onnx", OWN, "spec.model.buffers=[temperature]",
                  NULL);
    MUST_NOT_NOTE(rows_job, IMAGES, NULL);
    MUST_NOTE("takes its statistics of 3 samples at a time (of 1 once a step), the microbatch that",
              rows_job, IMAGES, "spec.train.microBatch=auto", "spec.devices.max=3", NULL);
    MUST_NOT_NOTE(rows_job, IMAGES, "spec.train.microBatch=auto", "spec.devices.max=1", NULL);
#undef IMAGES
}

/* What decides bits changes the digest, and nothing else does. */
static void digest(void **state)
{
    static const struct {
        const char *override;
        bool same;
    } cases[] = {{"metadata.name=other", true},
                 {"spec.devices.want=2", true},
                 {"spec.failure.maxRestarts=5", true},
                 {"spec.priority=3", true},
                 {"spec.data.eval=null", true},
                 {"spec.train.epochs=9", true}, /* the schedule is constant */
                 {"spec.train.seed=2", false},
                 {"spec.train.microBatch=5", false},
                 {"spec.train.optimizer.lr=0.002", false},
                 {"spec.train.optimizer.decay=all", false},
                 {"spec.train.clipNorm=1.0", false},
                 {"spec.loss.labelSmoothing=0.1", false},
                 {"spec.data.train.path=held.npy", false}};
    struct rb_compiled plain, other;

    (void)state;
    MUST_COMPILE(rows_job, &plain, NULL);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        bool held = strstr(cases[i].override, "held.npy") != NULL;

        MUST_COMPILE(rows_job, &other, cases[i].override,
                     held ? "spec.data.train.targets=held-labels.npy" : NULL, NULL);
        if (!strcmp(plain.model->spec_digest, other.model->spec_digest) != cases[i].same)
            fail_msg("%s %s the digest", cases[i].override, cases[i].same ? "changes" : "keeps");
        rb_compiled_done(&other);
    }
    rb_compiled_done(&plain);
    MUST_COMPILE(rows_job, &plain, "spec.train.schedule.type=cosine", NULL);
    MUST_COMPILE(rows_job, &other, "spec.train.schedule.type=cosine", "spec.train.epochs=9", NULL);
    assert_string_not_equal(plain.model->spec_digest, other.model->spec_digest);
    rb_compiled_done(&plain);
    rb_compiled_done(&other);
}

static void decay(void **state)
{
    struct rb_compiled compiled;

    (void)state;
    MUST_COMPILE(rows_job, &compiled, NULL);
    for (size_t i = 0; i < compiled.model->n_variables; i++)
        assert_int_equal(compiled.model->variables[i]->decay,
                         compiled.model->variables[i]->n_dims >= 2);
    rb_compiled_done(&compiled);
    MUST_COMPILE(rows_job, &compiled, "spec.train.optimizer.decay=all",
                 "spec.train.optimizer.type=sgd", "spec.train.optimizer.momentum=0.9", NULL);
    for (size_t i = 0; i < compiled.model->n_variables; i++)
        assert_true(compiled.model->variables[i]->decay);
    assert_int_equal(compiled.model->optimizer->kind, RB__OPTIMIZER__KIND__SGD);
    assert_float_equal(compiled.model->optimizer->momentum, 0.9, 0);
    assert_float_equal(compiled.model->optimizer->weight_decay, 0, 0);
    rb_compiled_done(&compiled);
}

/* A limit that the job does not fit asks for less to be kept; `never` does not, and it changes
 * nothing that the digest knows of. */
static void computed_again(void **state)
{
    struct rb_compiled whole, kept, again;
    char limit[64];

    (void)state;
    MUST_COMPILE(text_job, &whole, NULL);
    assert_null(strstr(whole.summary, "instead of"));
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu",
             (unsigned long long)(rb_footprint_bytes(whole.model, 2, 8) - 1));
    MUST_COMPILE(text_job, &kept, limit, "spec.memory.recompute=never", NULL);
    MUST_COMPILE(text_job, &again, limit, NULL);
    assert_int_equal(kept.model->programs[0]->arena_bytes, whole.model->programs[0]->arena_bytes);
    assert_true(again.model->programs[0]->arena_bytes < whole.model->programs[0]->arena_bytes);
    assert_true(again.model->programs[0]->n_instructions >
                whole.model->programs[0]->n_instructions);
    assert_non_null(strstr(again.summary, "instead of"));
    assert_string_equal(again.model->spec_digest, whole.model->spec_digest);
    rb_compiled_done(&whole);
    rb_compiled_done(&kept);
    rb_compiled_done(&again);
}

/* Shards are longer on fewer devices: with a limit between what the most and the least of them
 * need, the job has programs of both kinds. */
static void computed_again_on_fewer(void **state)
{
    const char *const batch = "spec.train.globalBatch=31";
    struct rb_compiled whole, both, tight, all;
    struct rb_footprint footprint;
    char limit[64];
    uint64_t most, least;
    size_t n;

    (void)state;
    MUST_COMPILE(text_job, &whole, batch, NULL);
    n = whole.model->n_programs;
    most = rb_footprint_bytes(whole.model, 2, 8);
    least = rb_footprint_bytes(whole.model, 2, 1);
    assert_true(most < least);
    assert_false(rb_footprint_has_both(whole.model));
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu", (unsigned long long)most);
    MUST_COMPILE(text_job, &both, batch, limit, NULL);
    assert_true(rb_footprint_has_both(both.model));
    assert_true(whole.model->global_batch % whole.model->micro_batch);
    assert_int_equal(both.model->n_programs, n + 2);
    for (size_t p = 0; p < both.model->n_programs; p++) {
        const Rb__Program *one = both.model->programs[p];
        const Rb__Program *plain = whole.model->programs[p < n ? p : p == n ? 0 : 1];

        assert_int_equal(one->recomputes, p >= n);
        assert_int_equal(one->batch, plain->batch);
        assert_int_equal(one->train, plain->train);
        assert_int_equal(one->n_contributions, plain->n_contributions);
        assert_true(p < n ? one->n_instructions == plain->n_instructions
                          : one->n_instructions > plain->n_instructions);
    }
    footprint = rb_footprint_of(both.model);
    assert_true(footprint.again < footprint.kept);
    assert_int_equal(rb_footprint_bytes(both.model, 2, 8), most);
    assert_int_equal(rb_footprint_total(&footprint, false, 2, 8), most);
    assert_int_equal(rb_footprint_total(&footprint, true, 2, 8),
                     most - footprint.kept + footprint.again);
    assert_int_equal(rb_footprint_staged(&footprint, true, 0, 8, 3, 0),
                     least - footprint.kept + 5 * footprint.again);
    assert_non_null(strstr(both.summary, "where memory asks for it"));
    assert_string_equal(both.model->spec_digest, whole.model->spec_digest);

    /* nowhere, or everywhere in the same way: one set */
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu", (unsigned long long)most - 1);
    MUST_COMPILE(text_job, &tight, batch, limit, NULL);
    assert_false(rb_footprint_has_both(tight.model));
    assert_int_equal(tight.model->n_programs, n);
    assert_true(tight.model->programs[0]->n_instructions >
                whole.model->programs[0]->n_instructions);
    snprintf(limit, sizeof(limit), "spec.memory.limit=%llu", (unsigned long long)least);
    MUST_COMPILE(text_job, &all, batch, limit, NULL);
    assert_int_equal(all.model->n_programs, n);
    assert_int_equal(all.model->programs[0]->n_instructions,
                     whole.model->programs[0]->n_instructions);
    rb_compiled_done(&whole);
    rb_compiled_done(&both);
    rb_compiled_done(&tight);
    rb_compiled_done(&all);
}

/* A model of images of any size, and one more input where `more`. */
static void save_sides(const char *file, enum rb_dtype dtype, bool more)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    struct rb_writer w;
    const char *x = "x";

    rb_writer_init(&w, "sides", 3);
    rb_writer_input(&w, "x", dtype, 4, (int64_t[]){-1, 1, 0, 0});
    for (int axis = 2; axis < 4; axis++) {
        Onnx__TensorShapeProto__Dimension *dim =
            w.graph.input[0]->type->tensor_type->shape->dim[axis];

        dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
        dim->dim_param = rb_arena_string(&w.arena, axis == 2 ? "high" : "wide");
    }
    if (more)
        rb_writer_input(&w, "more", RB_F32, 2, (int64_t[]){-1, 1});
    x = rb_writer_node(&w, "GlobalAveragePool", "pooled", x, NULL);
    x = rb_writer_node(&w, "Flatten", "flat", x, NULL);
    if (more)
        x = rb_writer_node(&w, "Mul", "times", x, "more", NULL);
    rb_writer_node(&w, "MatMul", "logits", x,
                   rb_writer_weight(&w, "w", 2, (int64_t[]){1, 3}, RB_INIT_NORMAL, 0.1), NULL);
    rb_writer_output(&w, "logits", 2, (int64_t[]){-1, 3});
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    save(file, onnx.data, onnx.size);
}

/* Axes of no size are as long as in the data. */
static void sizes_of_the_data(void **state)
{
    struct rb_compiled compiled;
    const Rb__Program *program;
    bool found = false;

    (void)state;
    save_sides("sides.onnx", RB_F32, false);
    MUST_COMPILE(rows_job, &compiled, "spec.model.onnx=sides.onnx",
                 "spec.data.train.path=images.npy", "spec.data.train.targets=images-labels.npy",
                 "spec.data.eval=null", NULL);
    program = compiled.model->programs[0];
    for (size_t i = 0; i < program->n_tensors; i++) {
        const Rb__Tensor *tensor = program->tensors[i];

        if (tensor->space == RB__TENSOR__SPACE__INPUT && tensor->offset == 0 &&
            tensor->n_dims == 4) {
            assert_int_equal(tensor->dims[2], 8);
            assert_int_equal(tensor->dims[3], 8);
            found = true;
        }
    }
    assert_true(found);
    rb_compiled_done(&compiled);
    save_sides("more.onnx", RB_F32, true);
    MUST_REFUSE(RB_EUNSUPPORTED, "a further input 'more'", rows_job, "spec.model.onnx=more.onnx",
                "spec.data.train.path=images.npy", "spec.data.train.targets=images-labels.npy",
                "spec.data.eval=null", NULL);
    save_sides("half.onnx", RB_F16, false);
    MUST_REFUSE(RB_EUNSUPPORTED, "'x' is float16, and only float32", rows_job,
                "spec.model.onnx=half.onnx", "spec.data.train.path=images.npy",
                "spec.data.train.targets=images-labels.npy", "spec.data.eval=null", NULL);
}

static void refusals(void **state)
{
    (void)state;
    MUST_REFUSE(RB_EINVAL, "embedding", text_job, "spec.model.onnx=ascii.onnx", NULL);
    MUST_REFUSE(RB_EINVAL, "has 128 rows", text_job, "spec.model.onnx=ascii.onnx", NULL);
    MUST_REFUSE(RB_EINVAL, "int64[4]", text_job, "spec.data.train.seqLen=4", NULL);
    MUST_REFUSE(RB_EINVAL, "float32[7]", rows_job, "spec.data.train.path=wide.npy", NULL);
    MUST_REFUSE(RB_EINVAL, "target 4", rows_job, "spec.data.train.targets=wide-labels.npy", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.loss: mse", rows_job, "spec.loss.type=mse", NULL);
    MUST_REFUSE(RB_EINVAL, "needs targets", rows_job, "spec.data.train.targets=null", NULL);
    MUST_REFUSE(RB_ENOTFOUND, "spec.model.onnx", rows_job, "spec.model.onnx=none.onnx", NULL);
    MUST_REFUSE(RB_ENOTFOUND, "spec.data.train", rows_job, "spec.data.train.path=none.npy", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.train.tokens", rows_job, "spec.train.epochs=null",
                "spec.train.tokens=100", NULL);
}

static void alone(void **state)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/cnn.onnx", folder);
    struct rb_import_options options = {.batch = 2};
    struct rb_onnx *onnx = NULL;
    struct rb_compiled compiled;
    struct rb_why why = {0};

    (void)state;
    if (rb_onnx_open(path, 0, &onnx, &why) || rb_compile_opened(onnx, &options, &compiled, &why))
        fail_msg("%s", why.text);
    assert_int_equal(compiled.model->n_programs, 1);
    assert_int_equal(compiled.model->programs[0]->loss, -1);
    assert_true(compiled.model->programs[0]->n_outputs == 1);
    assert_int_equal(compiled.model->programs[0]->batch, 2);
    rb_compiled_done(&compiled);
    if (rb_compile_trainable(onnx, &options, &why))
        fail_msg("%s", why.text);
    if (rb_compile_training(onnx, path, &options, &compiled, &why))
        fail_msg("%s", why.text);
    assert_true(compiled.parameters > 0);
    rb_compiled_done(&compiled);
    options.free_size = 8;
    assert_int_equal(rb_compile_bind(onnx, &options, &why), RB_EINVAL);
    rb_onnx_close(onnx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt),
        cmocka_unit_test(deterministic),
        cmocka_unit_test(programs_for_every_size),
        cmocka_unit_test(relu_of_products),
        cmocka_unit_test(attention_in_one_node),
        cmocka_unit_test(attention_that_depends_on_the_batch),
        cmocka_unit_test(attention_of_parts),
        cmocka_unit_test(automatic_microbatch),
        cmocka_unit_test(cnn),
        cmocka_unit_test(weights),
        cmocka_unit_test(freezing),
        cmocka_unit_test(patterns_that_match_nothing),
        cmocka_unit_test(bytes_as_features),
        cmocka_unit_test(labels_that_are_no_classes),
        cmocka_unit_test(notes),
        cmocka_unit_test(digest),
        cmocka_unit_test(decay),
        cmocka_unit_test(computed_again),
        cmocka_unit_test(computed_again_on_fewer),
        cmocka_unit_test(sizes_of_the_data),
        cmocka_unit_test(refusals),
        cmocka_unit_test(alone),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
