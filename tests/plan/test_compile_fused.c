/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that are one node in the programs of some devices and several nodes in those of others:
 * ReLUs of products, attention. */
#include "base/arena.h"
#include "graph/models/writer.h"
#include "proto/operators.h"
#include "proto/spec.h"
#include "tests/plan/jobs.h"

#include <stdbool.h>
#include <string.h>

static int count(const Rb__Program *program, enum rb_op op)
{
    int n = 0;

    for (size_t i = 0; i < program->n_instructions; i++)
        n += program->instructions[i]->operator_ == op;
    return n;
}

/* GPUs have the ReLU in the product for nothing, CPUs keep the node; in training and in
 * inference. */
static void relu_of_products(void **state)
{
    struct rb_compiled compiled;

    (void)state;
    for (int gpu = 0; gpu < 2; gpu++) {
        MUST_COMPILE_FOR(gpu ? "cuda test" : "test", jobs_rows, &compiled, NULL);
        for (size_t p = 0; p < compiled.model->n_programs; p++) {
            assert_int_equal(count(compiled.model->programs[p], RB_OP_RELU), gpu ? 0 : 2);
            assert_int_equal(count(compiled.model->programs[p], RB_OP_RELU_GRAD),
                             compiled.model->programs[p]->train ? 2 : 0);
        }
        rb_compiled_done(&compiled);
    }
}

/* The gradient draws the same random numbers as its forward node. */
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

/* On a GPU of any size, on a core from a number of keys on; with bfloat16 on cores that multiply
 * pairs. */
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

        MUST_COMPILE_FOR(cases[i].class, jobs_text, &compiled, onnx, precision,
                         "spec.train.globalBatch=7", "spec.train.microBatch=3", NULL);
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
    jobs_save(name, onnx.data, onnx.size);
}

/* Attention that is attention only for one sample is none for any number: all programs are made
 * alike.  And where samples are keys, fusing that pays for the whole microbatch is done for the
 * rest. */
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

        MUST_COMPILE_FOR(cases[i].class, jobs_rows, &compiled, onnx, cases[i].global,
                         cases[i].micro, NULL);
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

/* Parts of the rest's program too: the first part, of a whole microbatch, decides for all. */
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
    if (rb_spec_parse("job.yaml", jobs_folder(), jobs_rows, strlen(jobs_rows), overrides,
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_of_products),
        cmocka_unit_test(attention_in_one_node),
        cmocka_unit_test(attention_that_depends_on_the_batch),
        cmocka_unit_test(attention_of_parts),
    };

    return cmocka_run_group_tests(tests, jobs_open, jobs_close);
}
