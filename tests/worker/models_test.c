/* SPDX-License-Identifier: Apache-2.0 */
/* The generators' models, compiled as a submitted job is, on clusters of real workers: with dropout
 * and BatchNormalization, at any count and while they are resized, the same bits. */
#include "tests/worker/run.h"

#include "base/arena.h"
#include "base/sanitized.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/hash.h"
#include "graph/models/models.h"
#include "kernels/device.h"
#include "plan/compile/compile.h"
#include "plan/compile/footprint.h"
#include "plan/replicas.h"
#include "plan/schedule.h"
#include "plan/schedule_pipeline.h"
#include "proto/spec.h"
#include "worker/join/rehearse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 3 };

enum {
    STEPS = RB_SANITIZED ? 12 : 60, /* few, because they are done many times over */
    ENDLESS = 1000000,              /* for runs that are resized: broken off when that is done */
};

struct kind {
    const char *name, *settings[5];
    int n_settings;
    const char *data, *train, *more; /* parts of the job file */
    int64_t steps;                   /* 0: STEPS */
    uint32_t stages;                 /* of a pipeline, where there are as many workers */
    uint32_t replicas;               /* of each block of the state; 0: all hold all */
    bool tight;                      /* kept in memory by MOST workers, computed again by fewer */
};

static const struct kind mlp = {
    "mlp",
    {"inputs=48", "hidden=384", "depth=2", "classes=4"},
    4,
    "train: {path: features.npy, targets: targets.npy}, "
    "eval: {path: eval-features.npy, targets: eval-targets.npy}",
    "globalBatch: 10, microBatch: 3, clipNorm: 1.0, eval: {every: 20}, "
    "optimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}",
};
static const struct kind cnn = {
    "cnn",
    {"image=8", "channels=3", "classes=4", "batchnorm=1", "dropout=0.2"},
    5,
    "train: {path: features.npy, targets: targets.npy}, "
    "eval: {path: eval-features.npy, targets: eval-targets.npy}",
    "globalBatch: 14, microBatch: 4, eval: {every: 20}, "
    "schedule: {type: linear, warmup: 4, minRatio: 0.1}",
};
static const struct kind gpt = {
    "gpt",
    {"layers=2", "width=32", "heads=2", "seq=16", "dropout=0.1"},
    5,
    "train: {path: corpus.txt}",
    "globalBatch: 7, microBatch: 2, clipNorm: 1.0, "
    "schedule: {type: cosine, warmup: 6, minRatio: 0.1}",
};

static const struct kind gpt_bf16 = {
    "gpt",
    {"layers=2", "width=32", "heads=2", "seq=16", "dropout=0.1"},
    5,
    "train: {path: corpus.txt}",
    "globalBatch: 7, microBatch: 2, precision: bf16",
};

static void write_inputs(const char *folder, const struct kind *kind)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/corpus.txt", folder);
    const char *shape = strcmp(kind->name, "cnn") == 0 ? "3, 8, 8" : "48";
    int64_t inputs = strcmp(kind->name, "cnn") == 0 ? 192 : 48;
    struct rb_buffer text = {0};

    tiny_write_data(folder, "", 61, inputs, shape, 4, 1);
    tiny_write_data(folder, "eval-", 19, inputs, shape, 4, 2);
    for (int i = 0; i < 400; i++)
        rb_buffer_format(&text, "%d bottles of beer on the wall\n", i * i % 97);
    assert_int_equal(rb_file_write(path, text.data, text.size, NULL), 0);
    rb_buffer_done(&text);
}

/* What a device of MOST needs, with two replicas. */
static uint64_t needed(const Rb__Spec *spec)
{
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};
    uint64_t bytes;

    if (rb_compile(spec, rb_device_numeric_class("cpu"), &compiled, &why))
        fail_msg("%s", why.text);
    bytes = rb_footprint_bytes(compiled.model, 2, MOST);
    rb_compiled_done(&compiled);
    return bytes;
}

static Rb__JobFile *read_job(const char *folder, const struct kind *kind)
{
    RB_CLEANUP(rb_freep)
    char *text = rb_format("apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: test}\n"
                           "spec:\n  model: {onnx: model.onnx}\n  data: {%s}\n"
                           "  train: {steps: %lld, %s}\n  devices: {max: 3}\n  %s\n",
                           kind->data, (long long)(kind->steps ? kind->steps : STEPS), kind->train,
                           kind->more ? kind->more : "");
    struct rb_why why = {0};
    Rb__JobFile *job = NULL;

    if (rb_spec_parse("job.yaml", folder, text, strlen(text), NULL, 0, &job, &why))
        fail_msg("%s", why.text);
    if (kind->tight)
        job->spec->memory->limit = rb_format("%llu", (unsigned long long)needed(job->spec));
    return job;
}

/* What submitting does: FOLDER/model, weights.safetensors, plan.N. */
static void write_job(const char *folder, const struct kind *kind)
{
    RB_CLEANUP(rb_freep) char *onnx_path = rb_format("%s/model.onnx", folder);
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/weights.safetensors", folder);
    struct rb_compiled compiled = {0};
    struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    Rb__JobFile *job;

    write_inputs(folder, kind);
    if (rb_models_new(kind->name, kind->settings, kind->n_settings, &onnx, &why))
        fail_msg("%s", why.text);
    assert_int_equal(rb_file_write(onnx_path, onnx.data, onnx.size, NULL), 0);
    rb_buffer_done(&onnx);
    job = read_job(folder, kind);
    if (rb_compile(job->spec, rb_device_numeric_class("cpu"), &compiled, &why))
        fail_msg("%s", why.text);
    assert_int_equal(!!strstr(compiled.summary, "instead of"), kind->more || kind->tight);
    assert_int_equal(rb_footprint_has_both(compiled.model), kind->tight);
    rb__job_file__free_unpacked(job, NULL);
    tiny_write_message(folder, "model", &compiled.model->base);
    assert_int_equal(rb_file_write(weights, compiled.weights.data, compiled.weights.size, NULL), 0);
    for (uint32_t n = 1; n <= MOST; n++) {
        RB_CLEANUP(rb_freep) char *name = rb_format("plan.%u", n);
        Rb__Plan *plan = NULL;

        uint32_t stages = rb_pipeline_stages(kind->stages, n);

        if (stages ? rb_pipeline_plan(compiled.model, n, stages, &plan, &why)
                   : rb_schedule_data(compiled.model, n, &plan, &why))
            fail_msg("%s", why.text);
        plan->has_recomputes = plan->recomputes = kind->tight && n < MOST;
        rb_replicas_place(&(struct rb_replicas){kind->replicas, compiled.model->n_blocks, n, NULL},
                          compiled.model, plan);
        tiny_write_message(folder, name, &plan->base);
        rb__plan__free_unpacked(plan, NULL);
    }
    rb_compiled_done(&compiled);
}

/* Weights and moments; the manifest names the job, and with it the folder of its data. */
static void digest_tensors(const char *folder, char ret_digest[33])
{
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors"};
    struct rb_buffer all = {0};

    for (size_t i = 0; i < RB_COUNT(names); i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, names[i]);

        assert_int_equal(rb_file_read(path, 1 << 28, &all, NULL), 0);
    }
    rb_hash_digest(all.data, all.size, ret_digest);
    rb_buffer_done(&all);
}

static void run(const struct kind *kind, int workers, char ret_digest[33])
{
    struct cluster cluster;
    RB_CLEANUP(rb_freep) char *weights = NULL;
    char whole[33];

    cluster_open(&cluster, run_program);
    write_job(cluster.folder, kind);
    weights = rb_format("%s/weights.safetensors", cluster.folder);
    cluster_start(&cluster, workers, weights);
    cluster_finish(&cluster, whole);
    digest_tensors(cluster.workers[cluster.members[0]].final, ret_digest);
    assert_true(cluster.rows[STEPS]->loss < cluster.rows[1]->loss);
    cluster_close(&cluster);
}

/* counts: the number of workers at the beginning, and after each few steps.  The result is that of
 * `alone` on one device. */
static void check_resized(const struct kind *kind, const int *counts, int n,
                          const struct kind *alone)
{
    struct kind endless = *kind, reference = *alone;
    char digests[2][33];
    int64_t steps = 0;

    endless.steps = reference.steps = ENDLESS;
    for (int i = 0; i < 2; i++) {
        struct cluster cluster;
        RB_CLEANUP(rb_freep) char *weights = NULL;

        cluster_open(&cluster, run_program);
        write_job(cluster.folder, i ? &reference : &endless);
        weights = rb_format("%s/weights.safetensors", cluster.folder);
        if (i) {
            cluster_alone_until(&cluster, weights, steps);
        } else {
            cluster_spare(&cluster, 5);
            cluster_start(&cluster, counts[0], weights);
            for (int k = 1; k < n; k++) {
                cluster_until_step(&cluster, cluster.n_rows + 1);
                cluster_resize(&cluster, counts[k]);
            }
            cluster_until_step(&cluster, cluster.n_rows + 1);
            steps = cluster_break_off(&cluster);
        }
        digest_tensors(cluster.saved, digests[i]);
        cluster_close(&cluster);
    }
    assert_string_equal(digests[0], digests[1]);
}

static void check(const struct kind *kind)
{
    char reference[33], digest[33];

    run(kind, 1, reference);
    for (int workers = 2; workers <= MOST; workers++) {
        run(kind, workers, digest);
        assert_string_equal(digest, reference);
    }
    check_resized(kind, (int[]){1, 3, 2, 3}, 4, kind);
}

static void test_mlp(void **state)
{
    (void)state;
    check(&mlp);
}

static void test_cnn(void **state)
{
    (void)state;
    check(&cnn);
}

static void test_gpt(void **state)
{
    (void)state;
    check(&gpt);
}

static void test_gpt_bf16(void **state)
{
    (void)state;
    check(&gpt_bf16);
}

/* What is computed again does not change the bits: dropout, batch norm, both precisions. */
static void test_recomputed(void **state)
{
    static const struct kind *const kinds[] = {&cnn, &gpt_bf16};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        struct kind again = *kinds[i];
        char reference[33], digest[33];

        again.more = "memory: {recompute: always}";
        run(kinds[i], 1, reference);
        run(&again, 2, digest);
        assert_string_equal(digest, reference);
    }
}

/* In stages: weights that two stages share, statistics, and what each stage rounds or computes
 * again. */
static void test_stages(void **state)
{
    static const struct kind *const kinds[] = {&cnn, &gpt, &gpt_bf16};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        struct kind staged = *kinds[i];
        char reference[33], digest[33];

        run(kinds[i], 1, reference);
        staged.more = i == 1 ? NULL : "memory: {recompute: always}";
        for (staged.stages = 2; staged.stages <= 3; staged.stages++) {
            run(&staged, 3, digest);
            assert_string_equal(digest, reference);
        }
        for (staged.replicas = 1; staged.replicas <= 2; staged.replicas++) {
            staged.stages = 1 + staged.replicas;
            run(&staged, 3, digest);
            assert_string_equal(digest, reference);
        }
    }
}

/* Activations are kept by three workers and computed again by fewer, changing from one step to the
 * next; in stages, too. */
static void test_turns(void **state)
{
    static const struct kind *const kinds[] = {&cnn, &gpt, &gpt_bf16};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(kinds); i++) {
        struct kind tight = *kinds[i];

        tight.tight = true;
        tight.replicas = 2;
        tight.stages = i == 1 ? 0 : 2;
        check_resized(&tight, (int[]){1, 3, 2, 3}, 4, kinds[i]);
    }
}

/* ---- Memory ----------------------------------------------------------------------------------*/

static size_t resident(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long whole, pages;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &whole, &pages), 2);
    fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void use(struct rb_model *model, bool recomputes)
{
    struct rb_why why = {0};

    if (rb_model_use(model, recomputes, &why))
        fail_msg("%s", why.text);
}

/* The memory that a microbatch of one set of programs leaves behind, and the other set gives
 * back. */
static size_t touched(struct rb_model *model, bool recomputes)
{
    atomic_bool stop = false;
    size_t with;

    use(model, recomputes);
    rb_rehearse(model, true, &stop);
    with = resident();
    use(model, !recomputes);
    return with - resident();
}

/* A worker that computes again saves the memory that it should: pages of the other set go back. */
static void test_given_back(void **state)
{
    static const struct kind wide = {
        "mlp",
        {"inputs=48", "hidden=64", "depth=24", "classes=4"},
        4,
        "train: {path: features.npy, targets: targets.npy}",
        "globalBatch: 32768, microBatch: 16384",
        .tight = true,
    };
    struct rb_model *model = NULL;
    struct rb_footprint footprint;
    struct rb_why why = {0};
    struct cluster cluster;
    RB_CLEANUP(rb_freep) char *path = NULL;
    size_t kept, again;

    (void)state;
    if (RB_SANITIZED)
        skip(); /* the sanitizer's shadow of this memory would be counted too */
    cluster_open(&cluster, run_program);
    write_job(cluster.folder, &wide);
    path = rb_format("%s/model", cluster.folder);
    if (rb_model_load(path, "cpu", 0, &model, &why))
        fail_msg("%s", why.text);
    footprint = rb_footprint_of(model->message);
    assert_true(footprint.kept > footprint.again + ((size_t)32 << 20));
    for (int i = 0; i < 2; i++) { /* sums and inputs are touched in the first round */
        kept = touched(model, false);
        again = touched(model, true);
    }
    assert_true(kept + (8 << 20) > footprint.kept && kept < footprint.kept + (8 << 20));
    assert_true(again < footprint.again + (8 << 20));
    rb_model_free(model);
    cluster_close(&cluster);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),        cmocka_unit_test(test_cnn),
        cmocka_unit_test(test_gpt),        cmocka_unit_test(test_gpt_bf16),
        cmocka_unit_test(test_recomputed), cmocka_unit_test(test_stages),
        cmocka_unit_test(test_turns),      cmocka_unit_test(test_given_back),
    };

    if (!run_begin(argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
