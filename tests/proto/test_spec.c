/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/spec.h"

#include "proto/reflect.h"
#include "proto/spec_paths.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char smallest[] = "apiVersion: rubato/v1\n"
                               "kind: TrainJob\n"
                               "metadata: {name: gpt}\n"
                               "spec:\n"
                               "  model: {onnx: gpt.onnx}\n"
                               "  data: {train: {path: ./corpus.txt}}\n"
                               "  train: {steps: 2000}\n";

static Rb__JobFile *parse(const char *text, const char *const *overrides, int n)
{
    Rb__JobFile *job = NULL;
    struct rb_why why = {0};

    if (rb_spec_parse("job.yaml", "/jobs", text, strlen(text), overrides, n, &job, &why))
        fail_msg("%s", why.text);
    return job;
}

static void test_defaults(void **state)
{
    Rb__JobFile *job = parse(smallest, NULL, 0);
    const Rb__Spec *spec = job->spec;

    (void)state;
    assert_string_equal(job->metadata->name, "gpt");
    assert_string_equal(spec->model->onnx, "/jobs/gpt.onnx");
    assert_string_equal(spec->data->train->path[0], "/jobs/corpus.txt");
    assert_null(spec->data->eval);
    assert_int_equal(spec->train->global_batch, 32);
    assert_false(spec->train->has_micro_batch);
    assert_string_equal(spec->train->precision, "fp32");
    assert_true(spec->train->optimizer->betas[0] == 0.9 &&
                spec->train->optimizer->betas[1] == 0.999);
    assert_true(spec->train->optimizer->weight_decay == 0.01);
    assert_true(spec->train->optimizer->lr == 1e-3);
    assert_int_equal(spec->devices->max, 8);
    assert_int_equal(spec->checkpoint->keep, 3);
    assert_null(spec->checkpoint->path);
    assert_string_equal(spec->failure->window, "1h");
    rb__job_file__free_unpacked(job, NULL);
}

/* What etcd holds reads back as the same complete spec: no default is left to a later release. */
static void test_complete_in_json(void **state)
{
    Rb__JobFile *job = parse(smallest, NULL, 0);
    char *text = rb_reflect_to_text(&job->spec->base), *again;
    ProtobufCMessage *message;

    (void)state;
    assert_non_null(strstr(text, "\"globalBatch\":32"));
    assert_non_null(strstr(text, "\"window\":\"1h\""));
    assert_non_null(strstr(text, "\"clipNorm\":0.0"));
    assert_int_equal(
        rb_reflect_from_text(text, strlen(text), &rb__spec__descriptor, &message, NULL), 0);
    assert_int_equal(rb_spec_check("gpt", (Rb__Spec *)message, NULL), 0);
    again = rb_reflect_to_text(message);
    assert_string_equal(text, again);
    protobuf_c_message_free_unpacked(message, NULL);
    free(again);
    free(text);
    rb__job_file__free_unpacked(job, NULL);
}

static void test_overrides(void **state)
{
    static const char *const overrides[] = {
        "spec.train.steps=null",  "spec.train.epochs=2.5",       "spec.train.optimizer.type=sgd",
        "metadata.name=other",    "spec.model.onnx=/abs/m.onnx", "spec.data.eval.path=held.txt",
        "spec.model.buffers=auto"};
    Rb__JobFile *job = parse(smallest, overrides, 7);

    (void)state;
    assert_string_equal(job->metadata->name, "other");
    assert_string_equal(job->spec->model->onnx, "/abs/m.onnx");
    assert_string_equal(job->spec->data->eval->path[0], "/jobs/held.txt");
    assert_true(job->spec->train->optimizer->weight_decay == 0);
    assert_int_equal(job->spec->model->n_buffers, 0);
    assert_int_equal(rb_spec_steps(job->spec, 100, 0), 8); /* 250 samples, 32 a step */
    rb__job_file__free_unpacked(job, NULL);
}

/* Only a path that the user has written may be a pattern. */
static void test_folder_with_marks(void **state)
{
    static const char *const overrides[] = {"spec.data.train.path='*.txt'",
                                            "spec.data.eval.path=held.txt"};
    Rb__JobFile *job = NULL;
    struct rb_why why = {0};

    (void)state;
    assert_int_equal(
        rb_spec_parse("job.yaml", "/run[1]", smallest, strlen(smallest), overrides, 2, &job, &why),
        0);
    assert_string_equal(job->spec->data->train->path[0], "/run\\[1]/*.txt");
    assert_string_equal(job->spec->data->eval->path[0], "/run[1]/held.txt");
    rb__job_file__free_unpacked(job, NULL);
}

/* One file is a list of one, also in JSON; each path counts from the job file's folder. */
static void test_lists_of_files(void **state)
{
    static const char *const overrides[] = {"spec.data.train.path=[a/*.bin, /abs, ./b]",
                                            "spec.data.train.targets=y.npy"};
    static const char json[] =
        "{\"data\":{\"train\":{\"path\":\"one.txt\",\"targets\":[\"a\",\"b\"]}}}";
    Rb__JobFile *job = parse(smallest, overrides, 2);
    const Rb__SourceSpec *train = job->spec->data->train;
    ProtobufCMessage *message = NULL;

    (void)state;
    assert_int_equal(train->n_path, 3);
    assert_string_equal(train->path[0], "/jobs/a/*.bin");
    assert_string_equal(train->path[1], "/abs");
    assert_string_equal(train->path[2], "/jobs/b");
    assert_int_equal(train->n_targets, 1);
    assert_string_equal(train->targets[0], "/jobs/y.npy");
    rb__job_file__free_unpacked(job, NULL);
    assert_int_equal(
        rb_reflect_from_text(json, sizeof json - 1, &rb__spec__descriptor, &message, NULL), 0);
    train = ((Rb__Spec *)message)->data->train;
    assert_int_equal(train->n_path, 1);
    assert_string_equal(train->path[0], "one.txt");
    assert_int_equal(train->n_targets, 2);
    protobuf_c_message_free_unpacked(message, NULL);
}

static void refused(const char *override, int code, const char *expected)
{
    const char *const overrides[] = {override};
    Rb__JobFile *job = NULL;
    struct rb_why why = {0};
    int err =
        rb_spec_parse("job.yaml", "/", smallest, sizeof smallest - 1, overrides, 1, &job, &why);

    if (err != code || !strstr(why.text, expected))
        fail_msg("%s: %d '%s'", override, err, why.text);
}

/* Asynchronous schedules: pins that contradict each other. */
static void test_laps(void **state)
{
    static const struct {
        const char *key, *says;
    } cases[] = {
        {"spec.devices.max=3", "spec.devices.max: 3"},
        {"spec.train.microBatch=8", "spec.train.microBatch"},
        {"spec.memory.recompute=always", "spec.memory.recompute"},
        {"spec.train.globalBatch=16", NULL},
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        const char *const overrides[] = {"spec.parallel={pipeline: 2, schedule: spectrain}",
                                         "spec.devices.max=2", cases[i].key};
        Rb__JobFile *job = NULL;
        struct rb_why why = {0};
        int err =
            rb_spec_parse("job.yaml", "/", smallest, sizeof smallest - 1, overrides, 3, &job, &why);

        if (cases[i].says ? err != RB_EINVAL || !strstr(why.text, cases[i].says) : err)
            fail_msg("%s: %d '%s'", cases[i].key, err, why.text);
        if (job)
            rb__job_file__free_unpacked(job, NULL);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    refused("nonsense", RB_EINVAL, "expected key=value");
    refused("spec.train.stepz=1", RB_EINVAL, "did you mean 'steps'");
    refused("apiVersion=rubato/v2", RB_EINVAL, "expected 'rubato/v1', found rubato/v2");
    refused("kind=Job", RB_EINVAL, "TrainJob");
    refused("metadata.name=null", RB_EINVAL, "needs a name");
    refused("metadata.name=-a", RB_EINVAL, "not a name");
    refused("metadata.name=GPT", RB_EINVAL, "not a name");
    refused("metadata.name=a/b", RB_EINVAL, "not a name");
    refused("spec.model.onnx=null", RB_EINVAL, "spec.model.onnx: is missing");
    refused("spec.data.train.path=[]", RB_EINVAL, "spec.data.train.path: is missing");
    refused("spec.data.train.path=[a, '']", RB_EINVAL, "spec.data.train.path: is missing");
    refused("spec.data.train.targets=['']", RB_EINVAL, "spec.data.train.targets: one is empty");
    refused("spec.data.train=null", RB_EINVAL, "spec.data.train.path: is missing");
    refused("spec.data.train.format=csv", RB_EINVAL, "none of text | npy | idx | tokens");
    refused("spec.data.train.seqLen=0", RB_EINVAL, "not within");
    refused("spec.train.steps=null", RB_EINVAL, "say one of");
    refused("spec.train={epochs: 1, steps: 2}", RB_EINVAL, "only one of");
    refused("spec.train.steps=0", RB_EINVAL, "not within");
    refused("spec.train.steps=1e18", RB_EINVAL, "is not within 1 and 1099511627776");
    refused("spec.train={epochs: 0}", RB_EINVAL, "above 0");
    refused("spec.train.globalBatch=0", RB_EINVAL, "not within");
    refused("spec.train.microBatch=33", RB_EINVAL, "within 1 and 32");
    refused("spec.memory.recompute=often", RB_EINVAL, "auto | never | always");
    refused("spec.train.precision=fp16", RB_EINVAL, "none of fp32 | bf16");
    refused("spec.train.eval.every=5", RB_EINVAL, "no spec.data.eval");
    refused("spec.train.optimizer.type=adam", RB_EINVAL, "adamw | sgd");
    refused("spec.train.optimizer.type=|", RB_EINVAL, "adamw | sgd");
    refused("spec.train.optimizer.betas=[0.9]", RB_EINVAL, "two numbers");
    refused("spec.train.optimizer.betas=[0.9, 1]", RB_EINVAL, "exclusive");
    refused("spec.train.optimizer.momentum=0.9", RB_EINVAL, "sgd's");
    refused("spec.train.optimizer.nesterov=true", RB_EINVAL, "momentum");
    refused("spec.train.schedule.minRatio=2", RB_EINVAL, "within 0 and 1");
    refused("spec.train.onNonFinite.action=panic", RB_EINVAL, "skip | stop");
    refused("spec.loss.labelSmoothing=1", RB_EINVAL, "exclusive");
    refused("spec.loss={type: mse, labelSmoothing: 0.1}", RB_EINVAL, "cross_entropy only");
    refused("spec.devices.min=0", RB_EINVAL, "within 1 and 8");
    refused("spec.devices.want=9", RB_EINVAL, "9 is above spec.devices.max, 8");
    refused("spec.devices.min=9", RB_EINVAL, "9 is above spec.devices.max, 8");
    refused("spec.devices={min: 2}", RB_EINVAL, "within 2 and 8");
    refused("spec.devices.kind=tpu", RB_EINVAL, "any | cpu | cuda");
    refused("spec.parallel.pipeline=0", RB_EINVAL, "within 1 and 64");
    refused("spec.parallel.schedule=1f1b", RB_EINVAL, "spec.parallel.pipeline");
    refused("spec.parallel={pipeline: 2, schedule: gpipe}", RB_EINVAL, "1f1b | vanilla");
    refused("spec.parallel={pipeline: 2, schedule: spectrain}", RB_EINVAL, "spec.devices.max: 8");
    refused("spec.parallel={pipeline: 1, schedule: 2bw}", RB_EINVAL, "of 2 or more");
    refused("spec.parallel.balance=odd", RB_EINVAL, "auto | shares | even");
    refused("spec.parallel.data=2", RB_EUNSUPPORTED, "this release");
    refused("spec.parallel.hypergraph=0", RB_EINVAL, "spec.parallel.hypergraph");
    refused("spec.parallel.hypergraph=17", RB_EINVAL, "spec.parallel.hypergraph");
    refused("spec.parallel={hypergraph: 2, cut: even}", RB_EINVAL, "words | layers");
    refused("spec.parallel.cut=layers", RB_EINVAL, "needs spec.parallel.hypergraph");
    refused("spec.state.replicas=3", RB_EINVAL, "auto | all | 1 | 2");
    refused("spec.memory.limit=4GiB", RB_EINVAL, "is no size");
    refused("spec.checkpoint.every=5", RB_EINVAL, "needs spec.checkpoint.path");
    refused("spec.checkpoint.keep=0", RB_EINVAL, "not within");
    refused("spec.checkpoint.numericClass=mine", RB_EINVAL, "none of same | any");
    refused("spec.failure.window=soon", RB_EINVAL, "no duration");
}

/* A value that only the checks find wrong is reported at its place in the file. */
static void test_position(void **state)
{
    static const char text[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: g}\nspec:\n"
                               "  model: {onnx: m}\n  data: {train: {path: d}}\n"
                               "  train:\n    steps: 1\n    globalBatch: 0\n";
    const char *overrides[] = {"spec.train.steps=null"};
    Rb__JobFile *job = NULL;
    struct rb_why why = {0};

    (void)state;
    assert_int_equal(rb_spec_parse("j", "/", text, sizeof text - 1, NULL, 0, &job, &why),
                     RB_EINVAL);
    assert_string_equal(why.text, "j:9:5: spec.train.globalBatch: 0 is not within 1 and 16777216");
    assert_int_equal(rb_spec_parse("j", "/", text, sizeof text - 1, overrides, 1, &job, &why),
                     RB_EINVAL);
    assert_string_equal(why.text, "j:7:3: spec.train: say one of steps, epochs, tokens");
    overrides[0] = "spec.train.globalBatch=-1";
    assert_int_equal(rb_spec_parse("j", "/", text, sizeof text - 1, overrides, 1, &job, &why),
                     RB_EINVAL);
    assert_memory_equal(why.text, "--set spec.train.globalBatch=-1: spec", 37);
}

static void test_read(void **state)
{
    char folder[] = "/tmp/rubato-spec-XXXXXX", path[64], expected[PATH_MAX], *real;
    Rb__JobFile *job = NULL;
    struct rb_why why = {0};
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/job.yaml", folder);
    assert_int_equal(rb_spec_read(path, NULL, 0, &job, &why), RB_ENOTFOUND);
    assert_non_null(strstr(why.text, path));
    file = fopen(path, "w");
    fputs(smallest, file);
    fclose(file);
    assert_int_equal(rb_spec_read(path, NULL, 0, &job, &why), 0);
    real = realpath(folder, NULL);
    snprintf(expected, sizeof expected, "%s/gpt.onnx", real);
    assert_string_equal(job->spec->model->onnx, expected);
    free(real);
    rb__job_file__free_unpacked(job, NULL);
    unlink(path);
    rmdir(folder);
}

/* The daemon checks specs that came over a wire: parts may be missing. */
static void test_check_incomplete(void **state)
{
    Rb__Spec spec = RB__SPEC__INIT;
    struct rb_why why = {0};

    (void)state;
    assert_int_equal(rb_spec_check("a", &spec, &why), RB_EINVAL);
    assert_int_equal(rb_spec_check("", &spec, &why), RB_EINVAL);
    assert_int_equal(rb_spec_check("a", NULL, &why), RB_EINVAL);
}

/* A spec that came over a wire has no folder from which relative paths count. */
static void test_check_relative(void **state)
{
    Rb__JobFile *job = parse(smallest, NULL, 0);
    char **paths[] = {&job->spec->model->onnx, &job->spec->data->train->path[0],
                      &job->spec->checkpoint->path};
    static const char *const keys[] = {
        "spec.model.onnx: ", "spec.data.train.path: ", "spec.checkpoint.path: "};
    struct rb_why why = {0};

    (void)state;
    assert_int_equal(rb_spec_check("a", job->spec, &why), 0);
    for (size_t i = 0; i < RB_COUNT(paths); i++) {
        char *kept = *paths[i];

        *paths[i] = (char *)"../here";
        assert_int_equal(rb_spec_check("a", job->spec, &why), RB_EINVAL);
        assert_memory_equal(why.text, keys[i], strlen(keys[i]));
        assert_non_null(strstr(why.text, "'../here' is relative"));
        *paths[i] = kept;
    }
    rb__job_file__free_unpacked(job, NULL);
}

/* An empty path counts as none, for every reader. */
static void test_checkpoints(void **state)
{
    const char *overrides[] = {"spec.checkpoint.path=c", "spec.checkpoint.path=''"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        Rb__JobFile *job = parse(smallest, overrides, i);
        const char *path = rb_spec_checkpoints(job->spec);

        if (i == 1)
            assert_string_equal(path, "/jobs/c");
        else
            assert_null(path);
        rb__job_file__free_unpacked(job, NULL);
    }
    assert_null(rb_spec_checkpoints(NULL));
}

static void test_steps(void **state)
{
    Rb__JobFile *job = parse(smallest, NULL, 0);
    Rb__TrainSpec *train = job->spec->train;

    (void)state;
    assert_int_equal(rb_spec_steps(job->spec, 10, 0), 2000);
    train->has_steps = 0;
    train->has_tokens = 1;
    train->tokens = 32 * 128 + 1;
    assert_int_equal(rb_spec_steps(job->spec, 10, 128), 2);
    assert_int_equal(rb_spec_steps(job->spec, 10, 0), 0);
    train->has_tokens = 0;
    train->has_epochs = 1;
    train->epochs = 0.001;
    assert_int_equal(rb_spec_steps(job->spec, 10, 0), 1);
    rb__job_file__free_unpacked(job, NULL);
}

static void test_durations(void **state)
{
    static const char *const bad[] = {"",
                                      "s",
                                      "5x",
                                      "-5",
                                      "1.2.3",
                                      "5 m",
                                      "1e3",
                                      "99999999999999d",
                                      "1m30",
                                      "1m s",
                                      "9999999d9999999d"};
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"90", 90000},    {"90s", 90000},    {"5m", 300000}, {"2h", 7200000},
                {"0", 0},         {"250ms", 250},    {"1.5", 1500},  {"1d", 86400000},
                {"1m30s", 90000}, {"2h05m", 7500000}};
    int64_t ms;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(good); i++) {
        assert_int_equal(rb_spec_duration_ms(good[i].text, &ms), 0);
        assert_int_equal(ms, good[i].ms);
    }
    for (size_t i = 0; i < RB_COUNT(bad); i++)
        assert_int_not_equal(rb_spec_duration_ms(bad[i], &ms), 0);
}

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"4096", 4096}, {"4Gi", UINT64_C(4) << 30}, {"1.5k", 1500}, {"2M", 2000000}};
    static const char *const bad[] = {"", "Gi", "4GiB", "-1", "4 Gi", "99999999Ti"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(good); i++) {
        uint64_t bytes = 0;

        assert_int_equal(rb_spec_bytes(good[i].text, &bytes), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < RB_COUNT(bad); i++) {
        uint64_t bytes;

        assert_int_not_equal(rb_spec_bytes(bad[i], &bytes), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),       cmocka_unit_test(test_complete_in_json),
        cmocka_unit_test(test_overrides),      cmocka_unit_test(test_folder_with_marks),
        cmocka_unit_test(test_lists_of_files), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_laps),           cmocka_unit_test(test_position),
        cmocka_unit_test(test_read),           cmocka_unit_test(test_check_incomplete),
        cmocka_unit_test(test_check_relative), cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_durations),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
