/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of the filters that compute several microbatches at once: the same bits as one after the
 * other, and as many everywhere as the rank that would take fewest. */
#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "graph/models/models.h"
#include "plan/compile/compile.h"
#include "plan/replicas.h"
#include "plan/split.h"
#include "proto/spec.h"
#include "tests/worker/crew.h"
#include "tests/worker/tiny.h"
#include "worker/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTS = 2 };

/* Microbatches of 4, 4, 4, 4, 4 and 2. */
static const char job_text[] =
    "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: test}\n"
    "spec:\n  model: {onnx: model.onnx}\n"
    "  data: {train: {path: features.npy, targets: targets.npy}}\n"
    "  train: {globalBatch: 22, microBatch: 4, steps: 4, optimizer: {type: sgd, momentum: 0.9}}\n"
    "  devices: {min: 2, max: 2, want: 2}\n"
    "  parallel: {hypergraph: 2, cut: layers}\n";

static void write_plan(const char *folder, const Rb__Model *model, uint32_t replicas)
{
    struct rb_replicas how = {replicas, model->n_blocks, PARTS, NULL};
    Rb__Plan *plan = NULL;
    struct rb_why why = {0};

    if (rb_split_plan(model, PARTS, PARTS, &plan, &why))
        fail_msg("%s", why.text);
    if (replicas)
        rb_replicas_place(&how, model, plan);
    tiny_write_message(folder, "plan", &plan->base);
    rb__plan__free_unpacked(plan, NULL);
}

/* FOLDER/model, weights, data and plan. */
static void write_job(const char *folder, const char *kind, uint32_t replicas)
{
    static const char *const small[] = {"image=8", "channels=3", "classes=4", "batchnorm=1"};
    static const char *const wide[] = {"inputs=192", "hidden=40", "depth=2", "classes=4"};
    RB_CLEANUP(rb_freep) char *onnx_path = rb_format("%s/model.onnx", folder);
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/weights.safetensors", folder);
    bool image = !strcmp(kind, "cnn");
    struct rb_compiled compiled = {0};
    struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    Rb__JobFile *job = NULL;

    tiny_write_data(folder, "", 60, 192, image ? "3, 8, 8" : "192", 4, 1);
    if (rb_models_new(kind, image ? small : wide, 4, &onnx, &why) ||
        rb_file_write(onnx_path, onnx.data, onnx.size, &why) ||
        rb_spec_parse("job.yaml", folder, job_text, strlen(job_text), NULL, 0, &job, &why) ||
        rb_compile(job->spec, rb_device_numeric_class("cpu"), &compiled, &why) ||
        rb_split_make(job->spec, rb_device_numeric_class("cpu"), &compiled, &why) ||
        rb_file_write(weights, compiled.weights.data, compiled.weights.size, &why))
        fail_msg("%s", why.text);
    tiny_write_message(folder, "model", &compiled.model->base);
    write_plan(folder, compiled.model, replicas);
    rb_compiled_done(&compiled);
    rb_buffer_done(&onnx);
    rb__job_file__free_unpacked(job, NULL);
}

/* Prepare the lanes that each rank would take. */
static void take_lanes(struct crew_rank *rank)
{
    const uint32_t *wanted = rank->crew->owner;
    struct rb_model *model = rank->model;
    const struct rb_stage *stage = rank->configuration->stage;
    struct rb_runner *runners[] = {&model->runners[stage->program],
                                   &model->runners[stage->last_program]};

    pthread_mutex_lock(&rank->crew->loading);
    for (size_t i = 0; i < RB_COUNT(runners) && !rank->err; i++)
        rank->err = rb_runner_prepare(model, runners[i], model->state.w, model->arena, model->train,
                                      &rank->why);
    rb_lanes_close(model);
    if (!rank->err)
        rank->err = rb_lanes_make(model, runners[0], runners[1], wanted[rank->rank], &rank->why);
    pthread_mutex_unlock(&rank->crew->loading);
}

static uint64_t train(const char *folder, const uint32_t wanted[PARTS], uint32_t agreed)
{
    uint32_t owned[PARTS] = {wanted[0], wanted[1]};
    struct crew crew = {.folder = folder, .size = PARTS, .joined = take_lanes, .owner = owned};
    struct rb_why why = {0};
    uint64_t hash;

    if (crew_run(&crew, &why))
        fail_msg("%s", why.text);
    for (uint32_t r = 0; r < PARTS; r++)
        assert_int_equal(crew.ranks[r].configuration->lanes, agreed);
    hash = rb_hash64(crew.ranks[0].model->state.w,
                     (size_t)crew.ranks[0].model->state.elements * sizeof(float));
    crew_done(&crew);
    return hash;
}

static void check(const char *kind, uint32_t replicas)
{
    static const uint32_t wanted[][PARTS] = {{2, 3}, {3, 2}, {8, 5}, {1, 8}};
    static const uint32_t one[PARTS] = {1, 1};
    char folder[] = "/tmp/rubato-split-lanes-XXXXXX";
    RB_CLEANUP(rb_freep) char *command = NULL;
    uint64_t hash;

    assert_non_null(mkdtemp(folder));
    command = rb_format("rm -r %s", folder);
    write_job(folder, kind, replicas);
    hash = train(folder, one, 1);
    for (size_t i = 0; i < RB_COUNT(wanted); i++)
        assert_true(train(folder, wanted[i],
                          wanted[i][0] < wanted[i][1] ? wanted[i][0] : wanted[i][1]) == hash);
    assert_int_equal(system(command), 0);
}

/* Every rank has all of the state. */
static void test_everywhere(void **state)
{
    (void)state;
    check("mlp", 0);
    check("cnn", 0);
}

/* Each rank has what it makes: sums stay where they are. */
static void test_alone(void **state)
{
    (void)state;
    check("mlp", 1);
    check("cnn", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
