/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that are computed at once: the same bits as one after the other. */
#include "base/arena.h"
#include "base/hash.h"
#include "base/sanitized.h"
#include "kernels/cpu/attention_tile.h"
#include "proto/operators.h"
#include "tests/bench/cases.h"
#include "worker/lanes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 3, MICROBATCHES = RB_KERNEL_EACH + 2 };

/* The result of a few steps with so many lanes; the first step is redone, and the last microbatch
 * is a smaller one. */
static uint64_t train(const struct bench_case *from, int64_t micro_batch, uint32_t lanes,
                      double *ret_loss)
{
    struct rb_step_result result = {0};
    struct bench_job job;
    struct rb_why why;
    uint64_t hash;

    bench_job_open(from, micro_batch, &job);
    rb_lanes_close(job.model);
    bench_check(rb_lanes_make(job.model, job.model->runner, job.model->last_runner, lanes, &why),
                &why);
    assert_int_equal(job.model->n_lanes, lanes);
    for (int i = 0; i < STEPS; i++)
        bench_job_step(&job, &result);
    hash = rb_hash64(job.model->state.w,
                     (size_t)job.model->message->state_elements * sizeof *job.model->state.w);
    *ret_loss = result.decision.loss;
    bench_job_close(&job);
    return hash;
}

static void check_in(const char *precision, const char *name, const char *setting,
                     int64_t micro_batch, int64_t batch, uint32_t most)
{
    const struct bench_case *found = bench_case_find(bench_sums_cases, bench_n_sums_cases, name);
    struct bench_case one;
    double alone, loss;
    uint64_t hash;

    assert_non_null(found);
    one = *found;
    if (setting)
        one.settings[0] = setting;
    one.precision = precision;
    one.batch = batch;
    hash = train(&one, micro_batch, 1, &alone);
    for (uint32_t lanes = 2; lanes <= most; lanes += RB_SANITIZED && lanes < most ? most - 2 : 1) {
        assert_int_equal(train(&one, micro_batch, lanes, &loss), hash);
        assert_memory_equal(&loss, &alone, sizeof loss);
    }
}

static void check(const char *name, const char *setting, int64_t micro_batch, int64_t batch,
                  uint32_t most)
{
    check_in(NULL, name, setting, micro_batch, batch, most);
}

static void test_mlp(void **state)
{
    (void)state;
    check("mlp", NULL, 8, 8 * MICROBATCHES - 3, RB_KERNEL_EACH);
}

/* Weights are rounded once for all lanes. */
static void test_bfloat(void **state)
{
    (void)state;
    check_in("bf16", "mlp", NULL, 8, 8 * MICROBATCHES, RB_KERNEL_EACH);
    check_in("bf16", "cnn", NULL, 4, 4 * MICROBATCHES, 3);
    check_in("bf16", "gpt", NULL, 1, MICROBATCHES, 3);
}

/* Where the last microbatch has a program of its own, what each of the two programs made once has
 * to stay. */
static void test_bfloat_of_two(void **state)
{
    struct bench_case one = *bench_case_find(bench_sums_cases, bench_n_sums_cases, "mlp");
    struct bench_job job;
    struct rb_why why;

    (void)state;
    one.precision = "bf16";
    one.batch = 8 * MICROBATCHES - 3;
    bench_job_open(&one, 8, &job);
    assert_int_equal(job.model->n_lanes, 1);
    rb_lanes_close(job.model);
    bench_check(rb_lanes_make(job.model, job.model->runner, job.model->last_runner, 2, &why), &why);
    assert_int_equal(job.model->n_lanes, 1);
    bench_job_close(&job);
}

static void test_cnn(void **state)
{
    (void)state;
    check("cnn", NULL, 4, 4 * MICROBATCHES - 1, RB_KERNEL_EACH);
}

/* Convolutions that need more than a little memory for themselves use what is free of their lane's
 * arena. */
static void test_wide_cnn(void **state)
{
    (void)state;
    check("cnn", "batchnorm=1", 48, 48 * 2, 2);
}

/* What the numeric class says of a processor agrees with what its kernels say. */
static void test_attention(void **state)
{
    const struct bench_case *gpt = bench_case_find(bench_sums_cases, bench_n_sums_cases, "gpt");
    struct bench_job job;
    size_t nodes = 0;

    (void)state;
    assert_non_null(gpt);
    bench_job_open(gpt, 1, &job);
    for (size_t i = 0; i < job.model->message->programs[0]->n_instructions; i++)
        nodes += job.model->message->programs[0]->instructions[i]->operator_ == RB_OP_ATTENTION;
    assert_true((nodes > 0) == (rb_attention_tiles(false) != NULL));
    bench_job_close(&job);
}

static void test_gpt(void **state)
{
    (void)state;
    check("gpt", NULL, 1, MICROBATCHES, RB_KERNEL_EACH);
}

/* How much of [first, first + bytes) is in memory? */
static size_t resident(void *first, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page - 1) / page, n = 0;
    unsigned char *seen = rb_alloc(pages);

    assert_int_equal(mincore(first, pages * page, seen), 0);
    for (size_t i = 0; i < pages; i++)
        n += (seen[i] & 1) * page;
    free(seen);
    return n;
}

/* Gradients that go into the sums from registers have their places in an arena.  They take no
 * memory there, and large pages take none for them either. */
static void test_arenas(void **state)
{
    enum { LITTLE = 512 << 10 };
    const struct bench_case *mlp = bench_case_find(bench_sums_cases, bench_n_sums_cases, "mlp");
    struct rb_step_result result;
    struct bench_job job;

    (void)state;
    assert_non_null(mlp);
    bench_job_open(mlp, 16, &job);
    bench_job_step(&job, &result);
    for (uint32_t i = 0; i < job.model->n_lanes; i++) {
        const struct rb_lane *lane = &job.model->lanes[i];
        size_t bytes = (size_t)lane->runner.message->arena_bytes;
        size_t written = (size_t)rb_program_working(lane->runner.program);

        assert_true(resident(lane->arena ? lane->arena : job.model->arena, bytes) <
                    written + LITTLE);
    }
    bench_job_close(&job);
}

/* As many lanes as a part of the caches holds; none where the weights stay in a core's own cache,
 * or are small beside what a microbatch writes. */
static void test_count(void **state)
{
    (void)state;
    assert_int_equal(rb_lanes_count(1200, 334, (struct rb_caches){1000, 1000}), 2);
    assert_int_equal(rb_lanes_count(1200, 333, (struct rb_caches){1000, 1000}), 3);
    assert_int_equal(rb_lanes_count(1200, 1, (struct rb_caches){1000, 1000}), RB_KERNEL_EACH);
    assert_int_equal(rb_lanes_count(1200, 600, (struct rb_caches){1000, 1200}), 2);
    assert_int_equal(rb_lanes_count(1200, 601, (struct rb_caches){1000, 12000}), 1);
    assert_int_equal(rb_lanes_count(1200, 0, (struct rb_caches){1000, 1000}), 1);
    assert_int_equal(rb_lanes_count(1200, 1, (struct rb_caches){1200, 1000}), 1);
}

/* The weights of a whole program are all that is trained. */
static void test_weights(void **state)
{
    struct bench_case one = *bench_case_find(bench_sums_cases, bench_n_sums_cases, "mlp");
    const Rb__Model *model;
    struct bench_job job;
    uint64_t elements = 0;

    (void)state;
    one.batch = 16;
    bench_job_open(&one, 8, &job);
    model = job.model->message;
    for (size_t v = 0; v < model->n_variables; v++)
        elements += model->variables[v]->elements; /* `trained_elements` has gaps between them */
    assert_int_equal(rb_lanes_weights(model, job.model->runner->message), elements * sizeof(float));
    bench_job_close(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlp),           cmocka_unit_test(test_bfloat),
        cmocka_unit_test(test_bfloat_of_two), cmocka_unit_test(test_cnn),
        cmocka_unit_test(test_wide_cnn),      cmocka_unit_test(test_attention),
        cmocka_unit_test(test_gpt),           cmocka_unit_test(test_arenas),
        cmocka_unit_test(test_count),         cmocka_unit_test(test_weights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
