/* SPDX-License-Identifier: Apache-2.0 */
/* The heart of it: whatever happens to the workers, the bits of the result are the same. */
#include "tests/worker/cluster.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *program;

enum { MOST = 5 };

/* Long enough that things happen on the way, short enough for a test: about a second. */
static const struct tiny_options job = {
    .samples = 203, /* batches straddle epochs */
    .eval_samples = 45,
    .global_batch = 22, /* microbatches of 4 4 4 4 4 2 */
    .micro_batch = 4,
    .steps = 400,
    .hidden = 4096,
    .eval_every = 50,
    .clip_norm = 0.5,
};

struct run {
    struct cluster cluster;
    char weights[160];
};

static void open_run(struct run *run, const struct tiny_options *options)
{
    cluster_open(&run->cluster, program);
    tiny_write(run->cluster.folder, options, MOST);
    snprintf(run->weights, sizeof run->weights, "%s/weights.safetensors", run->cluster.folder);
}

static void close_run(struct run *run)
{
    cluster_close(&run->cluster);
}

/* What an undisturbed run on one device gives: computed once. */
static char reference[33];
static Rb__Row **reference_rows;
static int64_t n_reference_rows;

static void make_reference(void)
{
    struct run run;

    open_run(&run, &job);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_finish(&run.cluster, reference);
    assert_int_equal(run.cluster.n_rows, job.steps + 1);
    reference_rows = RB_TAKE(run.cluster.rows);
    n_reference_rows = run.cluster.n_rows;
    run.cluster.n_rows = 0;
    close_run(&run);
}

static void compare_with_reference(struct run *run)
{
    char digest[33];

    cluster_finish(&run->cluster, digest);
    for (int64_t s = 1; s < run->cluster.n_rows; s++) {
        const Rb__Row *row = run->cluster.rows[s];

        if (!row)
            continue;
        assert_memory_equal(&row->loss, &reference_rows[s]->loss, sizeof row->loss);
        assert_memory_equal(&row->grad_norm, &reference_rows[s]->grad_norm, sizeof row->loss);
        assert_int_equal(row->first_sample, reference_rows[s]->first_sample);
        if (row->has_eval_loss)
            assert_memory_equal(&row->eval_loss, &reference_rows[s]->eval_loss, sizeof row->loss);
    }
    assert_string_equal(digest, reference);
}

static void test_learns(void **state)
{
    const Rb__Row *first = reference_rows[1], *last = reference_rows[job.steps];

    (void)state;
    assert_true(last->loss < 0.6 * first->loss);
    assert_int_equal(first->redone, 1); /* without history the first attempt is voted down */
    assert_true(last->has_eval_loss && last->has_eval_accuracy);
    assert_true(last->eval_accuracy > 0.5);
    assert_false(reference_rows[7]->has_eval_loss);
}

static void test_any_count(void **state)
{
    static const int counts[] = {2, 3, 5};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(counts); i++) {
        struct run run;

        open_run(&run, &job);
        cluster_start(&run.cluster, counts[i], run.weights);
        compare_with_reference(&run);
        close_run(&run);
    }
}

static void test_resized(void **state)
{
    static const int counts[] = {3, 2, 4, 1, 2, 3};
    struct run run;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 1, run.weights);
    for (size_t i = 0; i < RB_COUNT(counts); i++) {
        cluster_until_step(&run.cluster, 20 + 40 * (int64_t)i);
        cluster_resize(&run.cluster, counts[i]);
        assert_int_equal(run.cluster.n_members, counts[i]);
    }
    assert_true(run.cluster.n_rows <= job.steps); /* all of it happened while it trained */
    compare_with_reference(&run);
    close_run(&run);
}

static void test_moved(void **state)
{
    int fresh[2], both[4];
    struct run run;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_until_step(&run.cluster, 30);
    for (int i = 0; i < 2; i++) {
        both[i] = run.cluster.members[i];
        both[2 + i] = fresh[i] = cluster_spawn(&run.cluster);
    }
    cluster_move(&run.cluster, both, 4, NULL);
    assert_true(run.cluster.workers[fresh[0]].bytes > 0);
    cluster_move(&run.cluster, fresh, 2, NULL);
    assert_int_equal(run.cluster.workers[fresh[0]].bytes, run.cluster.workers[fresh[1]].bytes);
    compare_with_reference(&run);
    close_run(&run);
}

static void test_killed(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 4, run.weights);
    for (int64_t i = 0; i < 3; i++) {
        int victim = run.cluster.members[i == 1 ? 0 : run.cluster.n_members - 1];

        cluster_until_step(&run.cluster, 30 + 60 * i);
        cluster_kill(&run.cluster, victim);
        cluster_recover(&run.cluster);
    }
    assert_int_equal(run.cluster.n_members, 1);
    compare_with_reference(&run);
    close_run(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),  cmocka_unit_test(test_any_count),
        cmocka_unit_test(test_resized), cmocka_unit_test(test_moved),
        cmocka_unit_test(test_killed),
    };

    if (argc < 2) {
        fprintf(stderr, "usage: %s RUBATO-WORKER\n", argv[0]);
        return 2;
    }
    program = argv[1];
    make_reference();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
