/* SPDX-License-Identifier: Apache-2.0 */
/* Asynchronous pipelines on workers: the bits are those of the stages, whichever ranks hold the
 * state; laps are committed whole, whichever workers come, go and die; a report of a step stays
 * true. */
#include "tests/worker/run.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAP = 16, STEPS = RB_SANITIZED ? 150 : 300 };

static const struct tiny_options job = {
    .samples = 203,
    .eval_samples = 45,
    .global_batch = 22,
    .micro_batch = 22,
    .steps = STEPS,
    .hidden = RB_SANITIZED ? 200 : 1024,
    .eval_every = 50, /* not a multiple of the lap */
    .clip_norm = 0.5,
    .lap = LAP,
    .stages = 2,
    .laps = RB__ASYNCHRONOUS__KIND__SPECTRAIN,
};

static void run_laps(const struct tiny_options *options, char ret_digest[33])
{
    struct run run;

    run_open(&run, options);
    cluster_start(&run.cluster, (int)options->stages, run.weights);
    cluster_finish(&run.cluster, ret_digest);
    for (int64_t s = 1; s <= run.steps; s++)
        assert_non_null(run.cluster.rows[s]);
    run_close(&run);
}

/* Each schedule gives weights of its own, and the same weights wherever the state is held. */
static void test_same_bits(void **state)
{
    static const struct {
        int laps;
        bool formula;
    } kinds[] = {
        {RB__ASYNCHRONOUS__KIND__VANILLA, false},     {RB__ASYNCHRONOUS__KIND__STASHING, false},
        {RB__ASYNCHRONOUS__KIND__TWO_BUFFERS, false}, {RB__ASYNCHRONOUS__KIND__SPECTRAIN, false},
        {RB__ASYNCHRONOUS__KIND__SPECTRAIN, true},
    };
    char digests[RB_COUNT(kinds)][33];

    (void)state;
    for (size_t i = 0; i < RB_COUNT(kinds); i++)
        for (uint32_t replicas = 0; replicas <= 2; replicas++) {
            struct tiny_options options = job;
            char digest[33];

            options.laps = kinds[i].laps;
            options.formula = kinds[i].formula;
            options.stages = 3;
            options.replicas = replicas;
            if (options.laps == RB__ASYNCHRONOUS__KIND__TWO_BUFFERS)
                options.micro_batch = 7; /* 7 7 7 1 */
            run_laps(&options, replicas ? digest : digests[i]);
            if (replicas)
                assert_string_equal(digest, digests[i]);
        }
    for (size_t i = 0; i < RB_COUNT(kinds); i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(digests[i], digests[k]);
}

/* A sample that is no number, once an epoch: the rank that sees it leaves the step out, and all
 * ranks report that. */
static void test_not_finite(void **state)
{
    char digests[2][33];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct tiny_options options = job;
        struct run run;
        int64_t skipped = 0;

        options.bad_feature = HUGE_VAL;
        options.bad_once = true;
        options.replicas = i;
        run_open(&run, &options);
        cluster_start(&run.cluster, 2, run.weights);
        cluster_finish(&run.cluster, digests[i]);
        for (int64_t s = 1; s <= run.steps; s++) {
            skipped += run.cluster.rows[s]->skipped;
            assert_true(run.cluster.rows[s]->skipped || isfinite(run.cluster.rows[s]->loss));
        }
        assert_in_range(skipped, run.steps * options.global_batch / options.samples,
                        run.steps * options.global_batch / options.samples + 1);
        run_close(&run);
    }
    assert_string_equal(digests[0], digests[1]);
}

/* From laps to step by step on one device, and to laps of another number of stages. */
static void test_resized(void **state)
{
    static const int counts[] = {2, 3, 1, 3, 2};

    (void)state;
    for (uint32_t replicas = 0; replicas <= 2; replicas++) {
        struct tiny_options options = job;
        struct run run;

        options.stages = 3;
        options.replicas = replicas;
        options.steps = 1000000; /* so that every change is in time */
        run_open(&run, &options);
        cluster_spare(&run.cluster, 4);
        cluster_start(&run.cluster, 1, run.weights);
        for (size_t i = 0; i < RB_COUNT(counts); i++) {
            cluster_until_step(&run.cluster, run.cluster.n_rows + LAP);
            cluster_resize(&run.cluster, counts[i]);
        }
        cluster_until_step(&run.cluster, run.cluster.n_rows + LAP);
        for (int64_t s = 1; s < run.cluster.n_rows; s++)
            assert_non_null(run.cluster.rows[s]);
        run_close(&run);
    }
}

/* Deaths in the middle of a lap, and while it ends.  The harness compares all reports of a step: so
 * what a worker reported before it died, the others arrive at, too. */
static void die_at(const char *point, int rank, int at, uint32_t stages, uint32_t replicas)
{
    RB_CLEANUP(rb_freep) char *fault = rb_format("%s:rank=%d:at=%d:do=kill", point, rank, at);
    struct tiny_options options = job;
    struct run run;

    options.stages = stages;
    options.replicas = replicas;
    run_open(&run, &options);
    run_with_death(&run, fault, (int)stages);
    cluster_finish(&run.cluster, (char[33]){0});
    for (int64_t s = 1; s <= run.steps; s++)
        assert_non_null(run.cluster.rows[s]);
    run_close(&run);
}

static void test_deaths(void **state)
{
    static const struct {
        const char *point;
        int at;
    } cases[] = {
        {"worker.computed", 5},  {"worker.computed", 40}, {"worker.reduced", 2},
        {"worker.vote", 3},      {"worker.voted", 3},     {"worker.update", 20},
        {"worker.committed", 3}, {"worker.row", 3},
    };

    (void)state;
#ifndef RB_FAULTS
    skip();
#endif
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        for (int rank = 0; rank < 2; rank++)
            die_at(cases[i].point, rank, cases[i].at, 2, 0);
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        die_at(cases[i].point, (int)i % 3, cases[i].at, 3, 2);
    for (int at = 60; at < 100; at += 7) /* in the middle of a message */
        die_at("worker.frame", at % 2, at, 2, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_resized),
        cmocka_unit_test(test_deaths),
    };

    if (!run_begin(argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
