/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/reflect.h"

#include "control.pb-c.h"
#include "facts.pb-c.h"
#include "spec.pb-c.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static Rb__JobState *state_from(const char *text, int expected, const char *expected_why)
{
    ProtobufCMessage *message = NULL;
    struct rb_why why = {0};
    int err = rb_reflect_from_text(text, strlen(text), &rb__job_state__descriptor, &message, &why);

    if (err != expected || (expected_why && !strstr(why.text, expected_why)))
        fail_msg("%s: %d, '%s'", text, err, why.text);
    return (Rb__JobState *)message;
}

static void assert_text(const ProtobufCMessage *message, const char *expected)
{
    char *text = rb_reflect_to_text(message);

    assert_string_equal(text, expected);
    free(text);
}

static void test_json_round_trip(void **state)
{
    static const char text[] =
        "{\"phase\":\"Running\",\"reason\":\"\\u00e9 \\\"x\\\"\",\"active\":3,"
        "\"restarts\":[1,\"18446744073709551615\"],"
        "\"parked\":{\"step\":-4,\"path\":\"/p\",\"node\":\"n\",\"time\":5,"
        "\"bytes\":6},\"unheardOf\":[1]}";
    static const char expected[] = "{\"phase\":\"Running\",\"reason\":\"\u00e9 \\\"x\\\"\","
                                   "\"active\":3,\"restarts\":[1,\"18446744073709551615\"],"
                                   "\"parked\":{\"step\":-4,\"path\":\"/p\",\"node\":\"n\","
                                   "\"time\":5,\"bytes\":6}}";
    Rb__JobState *job = state_from(text, 0, NULL);

    (void)state;
    assert_int_equal(job->phase, RB__PHASE__Running);
    assert_true(job->restarts[1] == UINT64_MAX);
    assert_int_equal(job->parked->step, -4);
    assert_text(&job->base, expected);
    rb__job_state__free_unpacked(job, NULL);
}

static void test_json_refusals(void **state)
{
    (void)state;
    state_from("{}", RB_EINVAL, "'phase' is missing");
    state_from("{\"phase\":\"Walking\"}", RB_EINVAL, "phase: unknown word");
    state_from("{\"phase\":\"Running\",\"active\":-1}", RB_EINVAL, "active: the number");
    state_from("{\"phase\":\"Running\",\"active\":4294967296}", RB_EINVAL, "out of range");
    state_from("{\"phase\":\"Running\",\"active\":1.5}", RB_EINVAL, "expected an integer");
    state_from("{\"phase\":\"Running\",\"restarts\":7}", RB_EINVAL, "array");
    state_from("{\"phase\":\"Running\",\"restarts\":[1,true]}", RB_EINVAL, "restarts: [1]");
    state_from("{\"phase\":\"Running\",\"reason\":3}", RB_EINVAL, "string");
    state_from("{\"phase\":\"Running\",\"parked\":{}}", RB_EINVAL, "parked: 'step' is missing");
    state_from("{\"phase\":\"Running\"", RB_EINVAL, "not JSON");
    state_from("[]", RB_EINVAL, "object");
}

static void test_json_not_finite(void **state)
{
    Rb__Progress progress = RB__PROGRESS__INIT;
    ProtobufCMessage *message;
    char *text;

    (void)state;
    progress.loss = NAN;
    progress.throughput = -INFINITY;
    text = rb_reflect_to_text(&progress.base);
    assert_non_null(strstr(text, "\"loss\":\"nan\""));
    assert_int_equal(
        rb_reflect_from_text(text, strlen(text), &rb__progress__descriptor, &message, NULL), 0);
    assert_true(isnan(((Rb__Progress *)message)->loss));
    assert_true(((Rb__Progress *)message)->throughput == -INFINITY);
    protobuf_c_message_free_unpacked(message, NULL);
    free(text);
}

static void test_json_defaults(void **state)
{
    Rb__ScheduleSpec schedule = RB__SCHEDULE_SPEC__INIT;
    json_t *json = rb_reflect_to_json(&schedule.base, true);

    (void)state;
    assert_text(&schedule.base, "{}");
    assert_string_equal(json_string_value(json_object_get(json, "type")), "constant");
    assert_true(json_is_integer(json_object_get(json, "warmup")));
    json_decref(json);
}

static void test_json_bad_utf8(void **state)
{
    Rb__Metadata metadata = RB__METADATA__INIT;

    (void)state;
    metadata.name = (char *)"a\xff";
    assert_text(&metadata.base, "{\"name\":\"a?\"}");
}

static Rb__Spec *spec_from(const char *text, const char *expected_why)
{
    ProtobufCMessage *message = NULL;
    struct rb_why why = {0};
    int err =
        rb_reflect_from_yaml("job.yaml", text, strlen(text), &rb__spec__descriptor, &message, &why);

    if (!err == !!expected_why || (expected_why && strcmp(why.text, expected_why) != 0))
        fail_msg("%s\n%d, '%s'", text, err, why.text);
    return (Rb__Spec *)message;
}

static void test_yaml(void **state)
{
    Rb__Spec *spec =
        spec_from("# a comment\n"
                  "model: {onnx: m.onnx, freeze: embed.*, buffers: auto, weights: null}\n"
                  "train:\n"
                  "  steps: 1e4\n"
                  "  seed: 18446744073709551615\n"
                  "  microBatch: auto\n"
                  "  optimizer: {lr: 1e-3, betas: [0.9, .95], nesterov: true}\n"
                  "state: {replicas: 2}\n"
                  "parallel:\n"
                  "memory: {limit: \"auto\"}\n"
                  "priority: -3\n",
                  NULL);

    (void)state;
    assert_string_equal(spec->model->onnx, "m.onnx");
    assert_null(spec->model->weights);
    assert_int_equal(spec->model->n_freeze, 1);
    assert_string_equal(spec->model->freeze[0], "embed.*");
    assert_string_equal(spec->model->buffers[0], "auto");
    assert_int_equal(spec->train->steps, 10000);
    assert_true(spec->train->seed == UINT64_MAX);
    assert_false(spec->train->has_micro_batch);
    assert_int_equal(spec->train->optimizer->n_betas, 2);
    assert_true(spec->train->optimizer->betas[1] == .95);
    assert_true(spec->train->optimizer->nesterov);
    assert_string_equal(spec->state->replicas, "2");
    assert_null(spec->parallel);
    assert_string_equal(spec->memory->limit, "auto");
    assert_int_equal(spec->priority, -3);
    rb__spec__free_unpacked(spec, NULL);
}

static void test_yaml_refusals(void **state)
{
    (void)state;
    spec_from("train:\n  optimizer:\n    lerningRate: 1\n",
              "job.yaml:3:5: unknown key 'lerningRate'; known here: type, lr, betas, eps, "
              "weightDecay, decay, momentum, nesterov");
    spec_from("train: {globalbatch: 3}",
              "job.yaml:1:9: unknown key 'globalbatch', did you mean 'globalBatch'?");
    spec_from("train:\n  steps: 3\n  steps: 4\n", "job.yaml:3:3: 'steps' is there twice");
    spec_from("train: {steps: many}", "job.yaml:1:16: steps: expected an integer, found 'many'");
    spec_from("train: {steps: 1.5}", "job.yaml:1:16: steps: expected an integer, found '1.5'");
    spec_from("train: {seed: -1}", "job.yaml:1:15: seed: -1 is negative");
    spec_from("devices: {min: 4294967296}", "job.yaml:1:16: min: 4294967296 is too large");
    spec_from("train: {clipNorm: .inf}",
              "job.yaml:1:19: clipNorm: expected a number, found '.inf'");
    spec_from("train: {steps: [1]}", "job.yaml:1:16: steps: expected a single value");
    spec_from("train: 3", "job.yaml:1:8: train: expected keys and values");
    spec_from("model: {freeze: [null]}", "job.yaml:1:18: freeze: expected a value");
    spec_from("[1]", "job.yaml:1:1: expected keys and values");
    spec_from("", "job.yaml:1:1: the file is empty");
    spec_from("model: &a {onnx: x}", "job.yaml:1:8: anchors are not supported");
    spec_from("model: *a", "job.yaml:1:8: aliases are not supported: write the value again");
    spec_from("priority: !!int 3", "job.yaml:1:11: tags are not supported");
    spec_from("model: {onnx: \"a\\0b\"}", "job.yaml:1:15: a zero byte in a value");
    spec_from("priority: 1\n---\npriority: 2\n",
              "job.yaml:2:1: a second document: one a file is read");
    spec_from("priority: 1\nmodel: {onnx: \"caf\xe9\"}\n",
              "job.yaml:2:20: not YAML: invalid trailing UTF-8 octet");
    spec_from("priority: 1\n\n  \x01\n",
              "job.yaml:3:3: not YAML: control characters are not allowed");
    spec_from("model:\n\tonnx: m\n", "job.yaml:2:1: not YAML: a tab, where only spaces may stand");
    spec_from("model: {onnx: m", "job.yaml:2:1: not YAML: did not find expected ',' or '}'");
}

static void test_yaml_depth(void **state)
{
    char text[200];

    (void)state;
    memset(text, '[', sizeof text);
    memcpy(text, "priority: ", 10);
    text[199] = '\0';
    spec_from(text, "job.yaml:1:11: priority: expected a single value");
    memcpy(text, "model: {freeze: [", 17);
    spec_from(text, "job.yaml:1:18: freeze: expected a single value");
}

static void assert_set(Rb__JobFile *job, const char *path, const char *value, const char *expected)
{
    struct rb_why why = {0};
    int err = rb_reflect_set(&job->base, path, value, &why);

    if (!err == !!expected || (expected && !strstr(why.text, expected)))
        fail_msg("%s=%s: %d '%s'", path, value, err, why.text);
}

static void test_set(void **state)
{
    Rb__JobFile *job = calloc(1, sizeof *job);

    (void)state;
    rb__job_file__init(job);
    assert_set(job, "spec.train.steps", "200", NULL);
    assert_set(job, "spec.train.steps", "300", NULL);
    assert_int_equal(job->spec->train->steps, 300);
    assert_set(job, "spec.train.steps", "null", NULL);
    assert_false(job->spec->train->has_steps);
    assert_set(job, "spec.train.optimizer.betas", "[0.5, 0.6]", NULL);
    assert_set(job, "spec.train.optimizer.betas", "[0.8, 0.9]", NULL);
    assert_int_equal(job->spec->train->optimizer->n_betas, 2);
    assert_set(job, "metadata.name", "x", NULL);
    assert_set(job, "metadata.name", "\"1\"", NULL);
    assert_string_equal(job->metadata->name, "1");
    assert_set(job, "spec.devices", "{min: 2, want: 3}", NULL);
    assert_int_equal(job->spec->devices->want, 3);
    assert_set(job, "spec.model.onnx", "", NULL);
    assert_null(job->spec->model->onnx);
    assert_set(job, "spec.loss.type", "null", NULL);
    assert_string_equal(job->spec->loss->type, "cross_entropy");
    assert_set(job, "spec.train.stps", "1", "did you mean 'steps'");
    assert_set(job, "spec.train.steps.x", "1", "no keys of its own");
    assert_set(job, "spec.train.steps", "\"1", "not YAML");
    assert_set(job, "spec.train.steps", "x", "steps: expected an integer");
    assert_set(job, "spec.train", "7", "expected keys and values");
    assert_set(job, "", "1", "unknown key ''");
    rb__job_file__free_unpacked(job, NULL);
}

static void test_locate(void **state)
{
    static const char text[] =
        "kind: x\nspec:\n  model: {onnx: [a, {b: c}]}\n  train:\n    steps: 3\n";
    size_t line = 0, column = 0;

    (void)state;
    assert_true(rb_reflect_locate(text, sizeof text - 1, "spec.train.steps", &line, &column));
    assert_int_equal(line, 5);
    assert_int_equal(column, 5);
    assert_true(rb_reflect_locate(text, sizeof text - 1, "spec.train.seed", &line, &column));
    assert_int_equal(line, 4);
    assert_int_equal(column, 3);
    assert_true(rb_reflect_locate(text, sizeof text - 1, "spec.model", &line, &column));
    assert_int_equal(line, 3);
    assert_false(rb_reflect_locate(text, sizeof text - 1, "metadata.name", &line, &column));
    assert_false(rb_reflect_locate("[", 1, "spec", &line, &column));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_round_trip),
        cmocka_unit_test(test_json_refusals),
        cmocka_unit_test(test_json_not_finite),
        cmocka_unit_test(test_json_defaults),
        cmocka_unit_test(test_json_bad_utf8),
        cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_yaml_refusals),
        cmocka_unit_test(test_yaml_depth),
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_locate),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
