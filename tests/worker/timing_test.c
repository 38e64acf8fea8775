/* SPDX-License-Identifier: Apache-2.0 */
/* Programs timed by instruction, through the interface that all devices have: on a core, and on the
 * device of the module named by RUBATO_CUDA_MODULE (a GPU, or the host in its place). */
#include "worker/timing/timing.h"

#include "base/arena.h"
#include "base/file.h"
#include "proto/operators.h"
#include "tests/worker/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *kind;

static const struct tiny_options job = {
    .samples = 40, .global_batch = 32, .micro_batch = 32, .steps = 1, .hidden = 512};

static struct rb_device *open_device(void)
{
    struct rb_device *device;
    struct rb_why why = {{0}};

    if (rb_device_open(kind, 0, &device, &why))
        fail_msg("%s", why.text);
    return device;
}

static struct rb_profile *take(struct rb_device *device, const Rb__Model *model, bool sums)
{
    const struct rb_timing how = {
        .warm = 1, .runs = 3, .least = 3, .most_ns = UINT64_C(1000000000), .sums = sums};
    struct rb_profile *profile;
    struct rb_why why = {{0}};

    if (rb_timing_model(device, model, &how, &profile, NULL, &why))
        fail_msg("%s", why.text);
    return profile;
}

/* Each product takes some time, and no less than at best. */
static void products_take_time(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    const Rb__Program *program = model->programs[0];
    struct rb_device *device = open_device();
    struct rb_profile *profile = take(device, model, false);
    size_t products = 0;

    (void)state;
    for (size_t i = 0; i < program->n_instructions; i++)
        if (program->instructions[i]->operator_ == RB_OP_MATMUL) {
            assert_true(rb_profile_ns(profile, i) > 0);
            products++;
        }
    assert_true(products >= 4);
    assert_true(rb_profile_whole(profile) > 0);
    rb_profile_free(profile);
    rb_device_close(device);
    rb__model__free_unpacked(model, NULL);
}

/* Contributions are added up on the way, in the device's memory. */
static void sums_go_with_it(void **state)
{
    Rb__Model *model = tiny_model("/tmp", &job);
    const Rb__Program *program = model->programs[0];
    struct rb_device *device = open_device();
    struct rb_profile *with = take(device, model, true);
    struct rb_why why = {{0}};

    (void)state;
    assert_true(program->n_contributions > 0);
    assert_true(rb_profile_whole(with) > 0);
    assert_int_equal(rb_device_check(device, &why), 0);
    rb_profile_free(with);
    rb_device_close(device);
    rb__model__free_unpacked(model, NULL);
}

/* Several microbatches at once gain something or lose little; the result is for as many as a worker
 * would take. */
static void microbatches_go_together(void **state)
{
    static const struct tiny_options small = {
        .samples = 40, .global_batch = 32, .micro_batch = 4, .steps = 1, .hidden = 1024};
    const struct rb_timing how = {
        .warm = 1, .runs = 3, .least = 3, .most_ns = UINT64_C(1000000000), .sums = true};
    Rb__Model *model = tiny_model("/tmp", &small);
    struct rb_device *device = open_device();
    struct rb_profile *profile;
    struct rb_timing_step step;
    struct rb_why why = {{0}};

    (void)state;
    if (rb_timing_model(device, model, &how, &profile, &step, &why))
        fail_msg("%s", why.text);
    assert_in_range(step.lanes, 1, RB_KERNEL_EACH);
    assert_true(step.together > 0.1 && step.together < 1.5);
    assert_true(step.lanes > 1 || step.together == 1);
    assert_true(step.copied > 1e6 && step.update > 0);
    assert_true(step.update * step.copied < 100 * 20); /* SGD touches 20 bytes or less */
    rb_profile_free(profile);
    rb_device_close(device);
    rb__model__free_unpacked(model, NULL);
}

/* What rubatod gets: the kind of device, its speed, and what is between it and its host. */
static void a_file_becomes_a_profile(void **state)
{
    char folder[] = "/tmp/rubato-timing-XXXXXX";
    RB_CLEANUP(rb_freep) char *path = NULL;
    Rb__Profile *profile = NULL;
    struct rb_why why = {{0}};

    (void)state;
    assert_non_null(mkdtemp(folder));
    path = rb_format("%s/model", folder);
    tiny_write(folder, &job, 1);
    if (rb_timing_of_file(kind, 0, path, &profile, &why))
        fail_msg("%s", why.text);
    assert_string_equal(profile->kind, kind);
    assert_true(profile->flops > 0 && profile->bytes > 0);
    assert_int_equal(profile->has_crossing, strcmp(kind, "cpu") != 0);
    assert_int_equal(profile->has_host_bytes, strcmp(kind, "cpu") != 0);
    assert_true(!profile->has_crossing || (profile->crossing > 0 && profile->host_bytes > 0));
    rb__profile__free_unpacked(profile, NULL);
    assert_int_equal(rb_timing_of_file(kind, 5000, path, &profile, &why),
                     strcmp(kind, "cpu") ? RB_ENOTFOUND : 0);
    if (strcmp(kind, "cpu") == 0)
        rb__profile__free_unpacked(profile, NULL);
    rb_file_remove(folder, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_take_time),
        cmocka_unit_test(sums_go_with_it),
        cmocka_unit_test(microbatches_go_together),
        cmocka_unit_test(a_file_becomes_a_profile),
    };
    struct rb_why why = {{0}};
    int count;

    kind = argc > 1 ? argv[1] : "cpu";
    if (rb_device_count(kind, &count, &why)) {
        fprintf(stderr, "%s\n", why.text);
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
