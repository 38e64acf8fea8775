/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/worker/run.h"

#include "base/arena.h"
#include "base/error.h"

#include "base/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *run_program;

/* Batches straddle epochs; microbatches are of 4 4 4 4 4 2. */
#define JOB(n_steps)                                                                               \
    {                                                                                              \
        .samples = 203, .eval_samples = 45, .global_batch = 22, .micro_batch = 4,                  \
        .steps = (n_steps), .hidden = RB_SANITIZED ? 400 : 4096, .eval_every = 50,                 \
        .clip_norm = 0.5,                                                                          \
    }

const struct tiny_options run_job = JOB(400), run_endless = JOB(1000000);

static char reference[33];
static Rb__Row **reference_rows;

bool run_begin(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s RUBATO-WORKER [FILTER]\n", argv[0]);
        return false;
    }
    run_program = argv[1];
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return true;
}

void run_open(struct run *run, const struct tiny_options *options)
{
    run->steps = options->steps;
    cluster_open(&run->cluster, run_program);
    tiny_write(run->cluster.folder, options, RUN_MOST);
    snprintf(run->weights, sizeof run->weights, "%s/weights.safetensors", run->cluster.folder);
}

void run_close(struct run *run)
{
    cluster_close(&run->cluster);
}

void run_arm(struct run *run, const char *fault)
{
    RB_CLEANUP(rb_freep) char *once = rb_format("%s/fired", run->cluster.folder);

    setenv("RUBATO_FAULT", fault, 1);
    setenv("RUBATO_FAULT_ONCE", once, 1);
}

void run_disarm(void)
{
    unsetenv("RUBATO_FAULT");
    unsetenv("RUBATO_FAULT_ONCE");
}

static bool one_ended(struct cluster *cluster, int64_t argument)
{
    (void)argument;
    for (int i = 0; i < cluster->n_members; i++)
        if (cluster->workers[cluster->members[i]].exited ||
            cluster->workers[cluster->members[i]].done)
            return true;
    return false;
}

void run_with_death(struct run *run, const char *fault, int workers)
{
    struct cluster *cluster = &run->cluster;
    bool died = false;

    run_arm(run, fault);
    cluster->mortal = true;
    cluster_start(cluster, workers, run->weights);
    cluster->mortal = false;
    run_disarm();
    cluster_until(cluster, one_ended, 0, "a death at a fault point");
    for (int i = 0; i < cluster->n_members; i++)
        died |= cluster->workers[cluster->members[i]].exited;
    if (!died)
        fail_msg("nobody passed %s", fault);
    cluster_recover(cluster);
}

void run_finish(struct run *run, const char *alone)
{
    char digest[33];

    cluster_finish(&run->cluster, digest);
    assert_string_equal(digest, alone);
    for (int64_t s = 1; s <= run->steps; s++)
        assert_non_null(run->cluster.rows[s]);
    run_close(run);
}

void run_alone(const struct tiny_options *options, char ret_digest[33])
{
    struct run run;

    run_open(&run, options);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_finish(&run.cluster, ret_digest);
    run_close(&run);
}

void run_refer(void)
{
    struct run run;

    run_open(&run, &run_job);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_finish(&run.cluster, reference);
    assert_int_equal(run.cluster.n_rows, run_job.steps + 1);
    reference_rows = RB_TAKE(run.cluster.rows);
    run.cluster.n_rows = 0;
    run_close(&run);
}

const char *run_reference(void)
{
    return reference;
}

Rb__Row *run_reference_row(int64_t step)
{
    return reference_rows[step];
}

/* Compare all steps up to one that a worker reported. */
static void compare_rows(const struct run *run, Rb__Row *const *alone, int64_t steps)
{
    for (int64_t s = 1; s <= steps; s++) {
        const Rb__Row *row = run->cluster.rows[s];

        if (!row)
            continue;
        assert_memory_equal(&row->loss, &alone[s]->loss, sizeof row->loss);
        assert_memory_equal(&row->grad_norm, &alone[s]->grad_norm, sizeof row->loss);
        assert_int_equal(row->first_sample, alone[s]->first_sample);
        if (row->has_eval_loss)
            assert_memory_equal(&row->eval_loss, &alone[s]->eval_loss, sizeof row->loss);
    }
}

void run_compare(struct run *run)
{
    char digest[33];

    cluster_finish(&run->cluster, digest);
    compare_rows(run, reference_rows, run->cluster.n_rows - 1);
    assert_string_equal(digest, reference);
}

/* ---- Without an end --------------------------------------------------------------------------*/

void run_end(struct run *run, const struct tiny_options *alone)
{
    char digest[33], expected[33];
    struct run lone;

    run->steps = cluster_break_off(&run->cluster);
    cluster_digest(run->cluster.saved, digest);
    run_open(&lone, alone);
    cluster_alone_until(&lone.cluster, lone.weights, run->steps);
    cluster_digest(lone.cluster.saved, expected);
    compare_rows(run, lone.cluster.rows, run->steps);
    assert_string_equal(digest, expected);
    run_close(&lone);
}

void run_end_whole(struct run *run, const struct tiny_options *alone)
{
    run_end(run, alone);
    for (int64_t s = 1; s <= run->steps; s++)
        assert_non_null(run->cluster.rows[s]);
    run_close(run);
}
