/* SPDX-License-Identifier: Apache-2.0 */
/* Job files to Models: what is chosen, what is refused, and what changes the digest. */
#include "base/arena.h"
#include "graph/models/writer.h"
#include "graph/onnx/onnx.h"
#include "proto/operators.h"
#include "tests/plan/jobs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
    MUST_COMPILE(jobs_text, &compiled, NULL);
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
    assert_non_null(strstr(compiled.summary, "batch 30 as 10 microbatches of 3"));
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
        MUST_COMPILE(jobs_text, &compiled[i], NULL);
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
    MUST_COMPILE(jobs_rows, &compiled, NULL);
    assert_int_equal(compiled.model->n_programs, 4);
    assert_program(compiled.model, 0, "train b=4", 4, true);
    assert_program(compiled.model, 1, "train b=2", 2, true);
    assert_program(compiled.model, 2, "eval b=4", 4, false);
    assert_program(compiled.model, 3, "eval b=3", 3, false);
    assert_int_equal(compiled.microbatches, 3);
    assert_int_equal(compiled.model->steps, 10);
    assert_int_equal(compiled.model->eval->samples, 7);
    assert_non_null(strstr(compiled.summary, "batch 10 as 2 microbatches of 4 and one of 2"));
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

        MUST_COMPILE(jobs_rows, &compiled, cases[i].batch, cases[i].most,
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
    MUST_COMPILE(jobs_rows, &compiled, "spec.model.onnx=cnn.onnx",
                 "spec.data.train.path=images.npy", "spec.data.train.targets=images-labels.npy",
                 "spec.data.eval=null", NULL);
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

enum own_divisor { WHOLE, OVER_BATCH, OVER_TEN };

/* y = sum or mean of (x * w)^2, times temperature, and maybe divided. */
static void save_own_loss(const char *name, const char *reduce, enum own_divisor divisor)
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
    x = rb_writer_node(&w, reduce, "whole", x, NULL);
    rb_writer_int(&w, "keepdims", 0);
    if (divisor != WHOLE) {
        const char *n = rb_writer_constant_ints(&w, "ten", 1, (int64_t[]){10});

        if (divisor == OVER_BATCH)
            n = rb_writer_node(&w, "Gather", "n", rb_writer_node(&w, "Shape", "shape", "x", NULL),
                               rb_writer_constant_ints(&w, "zero", 1, (int64_t[]){0}), NULL);
        n = rb_writer_node(&w, "Cast", "real", n, NULL);
        rb_writer_int(&w, "to", RB_F32);
        x = rb_writer_node(&w, "Div", "mean", x, n, NULL);
    }
    rb_writer_output(&w, x, divisor != WHOLE, (int64_t[]){1});
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(name, onnx.data, onnx.size);
}

/* Written like an exporter's model that has computed something from the weight. */
static void save_nameless(const char *name)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *x;

    rb_writer_init(&w, "nameless", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 6});
    x = rb_writer_weight(&w, "onnx::MatMul_7", 2, (int64_t[]){6, 3}, RB_INIT_NORMAL, 0.1);
    rb_writer_output(&w, rb_writer_node(&w, "MatMul", "logits", "x", x, NULL), 0, NULL);
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(name, onnx.data, onnx.size);
}

/* x * w through `op`. */
static void save_probabilities(const char *name, const char *op)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *x;

    rb_writer_init(&w, "sure", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){-1, 6});
    x = rb_writer_weight(&w, "w.weight", 2, (int64_t[]){6, 3}, RB_INIT_NORMAL, 0.1);
    x = rb_writer_node(&w, "MatMul", "logits", "x", x, NULL);
    rb_writer_output(&w, rb_writer_node(&w, op, "sure", x, NULL), 0, NULL);
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(name, onnx.data, onnx.size);
}

/* x * w, normalized, for batches of that size; -1: of any. */
static void save_normalized(const char *name, int64_t batch)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer onnx = {0};
    struct rb_writer w;
    struct rb_why why = {0};
    const char *x;

    rb_writer_init(&w, "fixed", 3);
    rb_writer_input(&w, "x", RB_F32, 2, (int64_t[]){batch, 6});
    x = rb_writer_weight(&w, "w.weight", 2, (int64_t[]){6, 3}, RB_INIT_NORMAL, 0.1);
    x = rb_writer_node(&w, "MatMul", "product", "x", x, NULL);
    x = rb_writer_node(&w, "BatchNormalization", "logits", x,
                       rb_writer_weight(&w, "n.weight", 1, (int64_t[]){3}, RB_INIT_ONE, 0),
                       rb_writer_weight(&w, "n.bias", 1, (int64_t[]){3}, RB_INIT_ZERO, 0),
                       rb_writer_weight(&w, "n.mean", 1, (int64_t[]){3}, RB_INIT_ZERO, 0),
                       rb_writer_weight(&w, "n.var", 1, (int64_t[]){3}, RB_INIT_ONE, 0), NULL);
    rb_writer_output(&w, x, 0, NULL);
    if (rb_writer_finish(&w, &onnx, &why))
        fail_msg("%s", why.text);
    rb_writer_done(&w);
    jobs_save(name, onnx.data, onnx.size);
}

#define OWN "spec.loss.type=graph", "spec.data.train.targets=null", "spec.data.eval=null"

static void notes(void **state)
{
    static const float threes[50 * 3];

#define IMAGES                                                                                     \
    "spec.model.onnx=cnn.onnx", "spec.data.train.path=images.npy",                                 \
        "spec.data.train.targets=images-labels.npy", "spec.data.eval=null"
    (void)state;
    jobs_save_npy("threes.npy", "<f4", "50, 3", threes, sizeof(threes));
    save_own_loss("sum.onnx", "ReduceSum", WHOLE);
    save_own_loss("mean.onnx", "ReduceMean", WHOLE);
    save_own_loss("batchmean.onnx", "ReduceSum", OVER_BATCH);
    save_own_loss("tenth.onnx", "ReduceSum", OVER_TEN);
    MUST_NOT_NOTE(jobs_rows, "spec.train.eval.every=3", NULL);
    MUST_NOTE("temperature (one number); where it is one, say spec.model.buffers: [temperature]\n",
              jobs_rows, "spec.model.onnx=sum.onnx", OWN, NULL);
    MUST_NOTE("the model's own loss is a sum", jobs_rows, "spec.model.onnx=sum.onnx", OWN,
              "spec.model.buffers=[temperature]", NULL);
    MUST_NOT_NOTE(jobs_rows, "spec.model.onnx=sum.onnx", OWN, "spec.model.buffers=[temperature]",
                  "spec.train.microBatch=10", NULL);
    MUST_NOT_NOTE(jobs_rows, "spec.model.onnx=mean.onnx", OWN, "spec.model.buffers=[temperature]",
                  NULL);
    for (int micro = 0; micro < 3; micro++) {
        const char *batch = ((const char *[]){"spec.train.microBatch=1", "spec.train.microBatch=4",
                                              "spec.train.microBatch=5"})[micro];

        MUST_NOT_NOTE(jobs_rows, "spec.model.onnx=batchmean.onnx", OWN,
                      "spec.model.buffers=[temperature]", batch, NULL);
    }
    MUST_NOTE("the model's own loss is no plain mean", jobs_rows, "spec.model.onnx=tenth.onnx", OWN,
              "spec.model.buffers=[temperature]", "spec.train.globalBatch=20",
              "spec.train.microBatch=10", NULL);
    save_normalized("normalized.onnx", -1);
    MUST_NOTE("'logits' takes its statistics of a single number, and", jobs_rows,
              "spec.model.onnx=normalized.onnx", "spec.train.microBatch=1", NULL);
    MUST_NOTE("a single number once a step, and then gives its bias", jobs_rows,
              "spec.model.onnx=normalized.onnx", "spec.train.microBatch=3", NULL);
    MUST_NOT_NOTE(jobs_rows, "spec.model.onnx=normalized.onnx", "spec.train.microBatch=2",
                  "spec.data.eval=null", NULL);
    save_probabilities("softmax.onnx", "Softmax");
    save_probabilities("log-softmax.onnx", "LogSoftmax");
    save_probabilities("sigmoid.onnx", "Sigmoid");
    MUST_NOTE("the model ends in a Softmax, and cross_entropy applies a softmax", jobs_rows,
              "spec.model.onnx=softmax.onnx", NULL);
    MUST_NOT_NOTE(jobs_rows, "spec.model.onnx=log-softmax.onnx", "spec.data.eval=null", NULL);
    MUST_NOTE("the model ends in a Sigmoid, and cross_entropy applies a softmax", jobs_rows,
              "spec.model.onnx=sigmoid.onnx", "spec.data.eval=null", NULL);
    MUST_NOTE("the model ends in a Sigmoid, and bce_with_logits applies a sigmoid", jobs_rows,
              "spec.model.onnx=sigmoid.onnx", "spec.loss.type=bce_with_logits",
              "spec.data.train.targets=threes.npy", "spec.data.eval=null", NULL);
    save_nameless("nameless.onnx");
    MUST_NOTE("1 of 1 weights lost their names (onnx::MatMul_7 ...)", jobs_rows,
              "spec.model.onnx=nameless.onnx", NULL);
    MUST_NOTE("instead: rubatoctl model check ", jobs_rows, "spec.model.onnx=nameless.onnx", NULL);
    MUST_NOT_NOTE(jobs_rows, IMAGES, NULL);
    MUST_NOTE("takes its statistics of 3 samples at a time (of 1 once a step), the microbatch that",
              jobs_rows, IMAGES, "spec.train.microBatch=auto", "spec.devices.max=3", NULL);
    MUST_NOT_NOTE(jobs_rows, IMAGES, "spec.train.microBatch=auto", "spec.devices.max=1", NULL);
#undef IMAGES
}

static void notes_of_the_job(void **state)
{
    static const float threes[50 * 3];
    static const struct {
        const char *one, *other, *says; /* NULL: nothing */
    } cases[] = {
        {"spec.loss.type=mse", "spec.loss.ignoreIndex=-1", "spec.loss.ignoreIndex is ignored"},
        {"spec.loss.type=mse", "spec.loss.ignoreIndex=-100", NULL},
        {"spec.train.optimizer.type=sgd", "spec.train.optimizer.betas=[0.9, 0.95]", "betas is ig"},
        {"spec.train.optimizer.type=sgd", "spec.train.optimizer.eps=1e-6", "eps is ignored"},
        {"spec.train.optimizer.betas=[0.9, 0.95]", "spec.train.optimizer.eps=1e-6", NULL},
        {"spec.train.schedule.type=constant", "spec.train.schedule.minRatio=0.1", "minRatio is ig"},
        {"spec.train.schedule.type=cosine", "spec.train.schedule.minRatio=0.1", NULL},
        {"spec.train.schedule.warmup=11", NULL, "warmup is longer than the job"},
        {"spec.train.schedule.warmup=10", NULL, NULL},
        {"spec.data.train.seqLen=6", NULL, "seqLen is ignored: it goes with text"},
        {"spec.devices.want=4", NULL, "a step has 3 microbatches"},
        {"spec.devices.max=4", NULL, "of 4 devices no more than that compute, but in a pipe"},
        {"spec.devices.max=3", NULL, NULL},
        {"spec.devices.max=4", "spec.parallel.pipeline=2", NULL},
        {"spec.train.globalBatch=51", NULL,
         "a step takes 51 samples, and the data have 50: some are"},
    };

    (void)state;
    jobs_save_npy("threes.npy", "<f4", "50, 3", threes, sizeof(threes));
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        bool mse = strstr(cases[i].one, "mse") != NULL;
        const char *targets =
            mse ? "spec.data.train.targets=threes.npy" : "spec.data.train.targets=rows-labels.npy";

        if (cases[i].says)
            MUST_NOTE(cases[i].says, jobs_rows, "spec.data.eval=null", targets, cases[i].one,
                      cases[i].other, NULL);
        else
            MUST_NOT_NOTE(jobs_rows, "spec.data.eval=null", targets, cases[i].one, cases[i].other,
                          NULL);
    }
    MUST_NOTE("spec.data.eval is ignored: say spec.train.eval.every", jobs_rows, NULL);
    save_normalized("fixed.onnx", 2);
    MUST_NOTE("was exported for batches of 2 only, so every microbatch is of that size", jobs_rows,
              "spec.model.onnx=fixed.onnx", "spec.train.microBatch=auto", NULL);
    MUST_NOTE("takes its statistics of 2 samples at a time, the microbatch of the export\n",
              jobs_rows, "spec.model.onnx=fixed.onnx", "spec.train.microBatch=auto", NULL);
    MUST_NOT_NOTE(jobs_rows, "spec.model.onnx=fixed.onnx", "spec.train.microBatch=2",
                  "spec.data.eval=null", NULL);
}

/* Settings that decide bits change the digest, and no others do. */
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
    MUST_COMPILE(jobs_rows, &plain, NULL);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        bool held = strstr(cases[i].override, "held.npy") != NULL;

        MUST_COMPILE(jobs_rows, &other, cases[i].override,
                     held ? "spec.data.train.targets=held-labels.npy" : NULL, NULL);
        if (!strcmp(plain.model->spec_digest, other.model->spec_digest) != cases[i].same)
            fail_msg("%s %s the digest", cases[i].override, cases[i].same ? "changes" : "keeps");
        rb_compiled_done(&other);
    }
    rb_compiled_done(&plain);
    MUST_COMPILE(jobs_rows, &plain, "spec.train.schedule.type=cosine", NULL);
    MUST_COMPILE(jobs_rows, &other, "spec.train.schedule.type=cosine", "spec.train.epochs=9", NULL);
    assert_string_not_equal(plain.model->spec_digest, other.model->spec_digest);
    rb_compiled_done(&plain);
    rb_compiled_done(&other);
}

static void decay(void **state)
{
    struct rb_compiled compiled;

    (void)state;
    MUST_COMPILE(jobs_rows, &compiled, NULL);
    for (size_t i = 0; i < compiled.model->n_variables; i++)
        assert_int_equal(compiled.model->variables[i]->decay,
                         compiled.model->variables[i]->n_dims >= 2);
    rb_compiled_done(&compiled);
    MUST_COMPILE(jobs_rows, &compiled, "spec.train.optimizer.decay=all",
                 "spec.train.optimizer.type=sgd", "spec.train.optimizer.momentum=0.9", NULL);
    for (size_t i = 0; i < compiled.model->n_variables; i++)
        assert_true(compiled.model->variables[i]->decay);
    assert_int_equal(compiled.model->optimizer->kind, RB__OPTIMIZER__KIND__SGD);
    assert_float_equal(compiled.model->optimizer->momentum, 0.9, 0);
    assert_float_equal(compiled.model->optimizer->weight_decay, 0, 0);
    rb_compiled_done(&compiled);
}

static void refusals(void **state)
{
    (void)state;
    MUST_REFUSE(RB_EINVAL, "embedding", jobs_text, "spec.model.onnx=ascii.onnx", NULL);
    MUST_REFUSE(RB_EINVAL, "text is bytes, 0 to 255, but the embedding 'wte.weight' has 128 rows",
                jobs_text, "spec.model.onnx=ascii.onnx", NULL);
    MUST_REFUSE(RB_EINVAL, "int64[4]", jobs_text, "spec.data.train.seqLen=4", NULL);
    MUST_REFUSE(RB_EINVAL, "text.txt is taken as text, a sequence whose targets are its own next",
                jobs_rows, "spec.data.train.path=text.txt", NULL);
    save_own_loss("own.onnx", "ReduceMean", WHOLE);
    MUST_REFUSE(RB_EINVAL, "is one number: where that is its loss, say spec.loss.type: graph",
                jobs_rows, "spec.model.onnx=own.onnx", NULL);
    MUST_REFUSE(RB_EINVAL, "float32[7]", jobs_rows, "spec.data.train.path=wide.npy", NULL);
    MUST_REFUSE(RB_EINVAL, "target 4", jobs_rows, "spec.data.train.targets=wide-labels.npy", NULL);
    MUST_REFUSE(RB_EINVAL,
                "spec.loss: mse: in a microbatch of 4 the model's output is float32[4,3] and the "
                "targets are int64[4]; it needs",
                jobs_rows, "spec.loss.type=mse", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.loss: cross_entropy needs targets, and the data have none: say",
                jobs_rows, "spec.data.train.targets=null", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.data.eval: cross_entropy needs targets", jobs_rows,
                "spec.data.eval.targets=null", "spec.train.eval.every=1", NULL);
    MUST_REFUSE(RB_ENOTFOUND, "spec.model.onnx", jobs_rows, "spec.model.onnx=none.onnx", NULL);
    MUST_REFUSE(RB_ENOTFOUND, "spec.data.train", jobs_rows, "spec.data.train.path=none.npy", NULL);
    MUST_REFUSE(RB_EINVAL, "spec.train.tokens", jobs_rows, "spec.train.epochs=null",
                "spec.train.tokens=100", NULL);
}

static void alone(void **state)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/cnn.onnx", jobs_folder());
    struct rb_import_options options = {.batch = 2};
    struct rb_onnx *onnx = NULL;
    struct rb_compiled compiled;
    struct rb_why why = {0};

    (void)state;
    if (rb_onnx_open(path, 0, &onnx, &why) ||
        rb_compile_opened(onnx, &options, NULL, &compiled, &why))
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
        cmocka_unit_test(automatic_microbatch),
        cmocka_unit_test(cnn),
        cmocka_unit_test(notes),
        cmocka_unit_test(notes_of_the_job),
        cmocka_unit_test(digest),
        cmocka_unit_test(decay),
        cmocka_unit_test(refusals),
        cmocka_unit_test(alone),
    };

    return cmocka_run_group_tests(tests, jobs_open, jobs_close);
}
