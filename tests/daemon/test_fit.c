/* SPDX-License-Identifier: Apache-2.0 */
/* Where no planner chooses, memory is counted as the planner counts it: at each limit both keep
 * activations, or both compute them again. */
#include "daemon/facts/fit.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "graph/models/models.h"
#include "plan/compile/compile.h"
#include "plan/compile/footprint.h"
#include "plan/flights.h"
#include "plan/search/search.h"
#include "proto/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 6 }; /* devices */

static char folder[] = "/tmp/rubato-fit-XXXXXX";

static void write_npy(const char *name, const char *header, const void *data, size_t size)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    struct rb_buffer out = {0};
    uint16_t bytes = (uint16_t)strlen(header);

    rb_buffer_add(&out, "\x93NUMPY\x01\0", 8);
    rb_buffer_add(&out, &bytes, sizeof bytes);
    rb_buffer_text(&out, header);
    rb_buffer_add(&out, data, size);
    assert_int_equal(rb_file_write(path, out.data, out.size, NULL), 0);
    rb_buffer_done(&out);
}

/* Samples of 3 x 8 x 8, or of 192. */
static void write_data(const char *shape)
{
    RB_CLEANUP(rb_freep)
    char *header =
        rb_format("{'descr': '<f4', 'fortran_order': False, 'shape': (32, %s), }\n", shape);
    static const float features[32 * 192];
    static const int64_t targets[32];

    write_npy("features.npy", header, features, sizeof features);
    write_npy("targets.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (32,), }\n",
              targets, sizeof targets);
}

static Rb__Model *compile(const Rb__Spec *spec)
{
    struct rb_compiled compiled = {0};
    struct rb_why why = {0};
    Rb__Model *model;

    if (rb_compile(spec, "cpu test", &compiled, &why))
        fail_msg("%s", why.text);
    model = RB_TAKE(compiled.model);
    rb_compiled_done(&compiled);
    return model;
}

/* The model fits as it is on MOST devices, with two replicas, and nowhere else. */
static Rb__Model *compile_tight(const char *name, const char *const *settings, int n_settings)
{
    static const char text[] =
        "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: test}\n"
        "spec:\n  model: {onnx: model.onnx}\n"
        "  data: {train: {path: features.npy, targets: targets.npy}}\n"
        "  train: {globalBatch: 32, microBatch: 8, steps: 1}\n  devices: {max: 6}\n";
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/model.onnx", folder);
    struct rb_buffer onnx = {0};
    struct rb_why why = {0};
    Rb__JobFile *job = NULL;
    Rb__Model *model;

    if (rb_models_new(name, settings, n_settings, &onnx, &why) ||
        rb_file_write(path, onnx.data, onnx.size, &why) ||
        rb_spec_parse("job.yaml", folder, text, strlen(text), NULL, 0, &job, &why))
        fail_msg("%s", why.text);
    rb_buffer_done(&onnx);
    model = compile(job->spec);
    job->spec->memory->limit =
        rb_format("%llu", (unsigned long long)rb_footprint_bytes(model, 2, MOST));
    rb__model__free_unpacked(model, NULL);
    model = compile(job->spec);
    assert_true(rb_footprint_has_both(model));
    rb__job_file__free_unpacked(job, NULL);
    return model;
}

/* What the planner counts where activations are kept. */
static uint64_t planned(const Rb__Model *model, uint32_t ranks, uint32_t stages, uint32_t copies)
{
    static const char text[] =
        "nodes: [{devices: [{count: 6, flops: 1e9, bandwidth: 1e9}], inside: {bandwidth: 1e8}}]";
    static const struct rb_cost_profile none;
    Rb__ParallelSpec parallel = RB__PARALLEL_SPEC__INIT;
    Rb__DevicesSpec devices = RB__DEVICES_SPEC__INIT;
    Rb__Spec spec = RB__SPEC__INIT;
    struct rb_cluster cluster;
    struct rb_search_how how = {.spec = &spec,
                                .model = model,
                                .cluster = &cluster,
                                .profile = &none,
                                .replicas = &copies,
                                .brief = true};
    struct rb_search found;
    struct rb_why why;
    uint64_t memory = 0;

    parallel.has_pipeline = true;
    parallel.pipeline = stages;
    devices.max = MOST;
    spec.parallel = &parallel;
    spec.devices = &devices;
    if (rb_cluster_parse("c.yaml", text, strlen(text), &cluster, &why) ||
        rb_search_run(&how, ranks, &found, &why))
        fail_msg("%s", why.text);
    for (size_t i = 0; i < found.n; i++)
        if (found.candidates[i].verdict == RB_SEARCH_CHOSEN && !found.candidates[i].recomputes)
            memory = (uint64_t)found.candidates[i].memory;
    rb_search_done(&found);
    rb_cluster_done(&cluster);
    assert_true(memory > 0);
    return memory;
}

static void check_limits(const Rb__Model *model)
{
    Rb__Footprint *footprint = rb_fit_describe(model, 0, MOST);
    Rb__Job job = RB__JOB__INIT;

    job.numeric_class = model->numeric_class;
    job.footprint = footprint;
    for (uint32_t ranks = 2; ranks <= MOST; ranks++)
        for (uint32_t stages = 2; stages <= ranks; stages++)
            for (uint32_t copies = 0; copies <= 2; copies++) {
                Rb__Configuration conf = RB__CONFIGURATION__INIT;
                uint64_t needs = planned(model, ranks, stages, copies);

                conf.n_members = ranks;
                conf.replicas = copies;
                conf.pipeline = stages;
                footprint->limit = needs;
                assert_false(rb_fit_recomputes(&job, &conf));
                footprint->limit = needs - 1;
                assert_true(rb_fit_recomputes(&job, &conf));
            }
    rb__footprint__free_unpacked(footprint, NULL);
}

/* If stages are alike, all together have about what one device alone makes. */
static void alike(void **state)
{
    static const char *const settings[] = {"inputs=192", "hidden=192", "depth=24", "classes=4"};
    Rb__Model *model;
    uint64_t two;

    (void)state;
    write_data("192");
    model = compile_tight("mlp", settings, 4);
    two = rb_flights_find(model, 2);
    assert_true(rb_flights_find(model, 8) < two + two / 4);
    assert_int_equal(rb_flights_find(model, 5), rb_flights_find(model, 8));
    check_limits(model);
    rb__model__free_unpacked(model, NULL);
}

/* The first layers of a convolutional net make most activations, so its first stage has most of
 * them. */
static void unlike(void **state)
{
    static const char *const settings[] = {"image=8", "channels=3", "classes=4", "batchnorm=1"};
    Rb__Model *model;
    uint64_t two;

    (void)state;
    write_data("3, 8, 8");
    model = compile_tight("cnn", settings, 4);
    two = rb_flights_find(model, 2);
    assert_true(rb_flights_find(model, 4) > two + two / 4);
    check_limits(model);
    rb__model__free_unpacked(model, NULL);
}

/* More stages than the model can be cut into are counted like the most that it can be cut into. */
static void too_many(void **state)
{
    static const char *const settings[] = {"inputs=192", "hidden=192", "depth=6", "classes=4"};
    Rb__Model *model;
    uint64_t *list;
    size_t n;

    (void)state;
    write_data("192");
    model = compile_tight("mlp", settings, 4);
    n = rb_flights_list(model, 64, &list);
    assert_int_equal(n, 6);
    assert_true(list[0] > 0);
    assert_int_equal(list[4], list[5]);
    for (uint32_t stages = 2; stages <= 64; stages++)
        assert_int_equal(rb_flights_of(list, n, stages), rb_flights_find(model, stages));
    free(list);
    rb__model__free_unpacked(model, NULL);
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    RB_CLEANUP(rb_freep) char *command = rb_format("rm -r %s", folder);

    (void)state;
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike),
        cmocka_unit_test(unlike),
        cmocka_unit_test(too_many),
    };

    return cmocka_run_group_tests(tests, open_folder, remove_folder);
}
