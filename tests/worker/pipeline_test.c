/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines on workers: the bits are those of a run on one device, whichever workers come, go and
 * die, and ranks have weights only where they are read. */
#include "tests/worker/run.h"

#include "base/arena.h"
#include "base/fault.h"
#include "base/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 100 };

static struct tiny_options job; /* run_job in fewer steps */

/* The result on one device, computed at the first call. */
static const char *alone(void)
{
    static char digest[33];

    if (!*digest)
        run_alone(&job, digest);
    return digest;
}

static void open_run(struct run *run, const struct tiny_options *options, uint32_t stages,
                     uint32_t replicas)
{
    struct tiny_options staged = *options;

    staged.stages = stages;
    staged.replicas = replicas;
    staged.both = replicas > 0; /* programs change with the number of workers, too */
    run_open(run, &staged);
}

static void test_any_count(void **state)
{
    static const struct {
        uint32_t stages;
        int workers;
    } shapes[] = {{2, 2}, {3, 3}, {2, 5}, {4, 5}};

    (void)state;
    for (uint32_t replicas = 0; replicas <= 2; replicas++)
        for (size_t i = 0; i < RB_COUNT(shapes); i++) {
            struct run run;

            open_run(&run, &job, shapes[i].stages, replicas);
            cluster_start(&run.cluster, shapes[i].workers, run.weights);
            run_finish(&run, alone());
        }
}

/* Between a pipeline and one device, and between pipelines, while it trains. */
static void test_resized(void **state)
{
    static const int counts[] = {3, 5, 2, 4, 1};

    (void)state;
    for (uint32_t replicas = 0; replicas <= 2; replicas++) {
        struct run run;

        open_run(&run, &run_endless, 3, replicas);
        cluster_spare(&run.cluster, 7);
        cluster_start(&run.cluster, 1, run.weights);
        for (size_t i = 0; i < RB_COUNT(counts); i++) {
            cluster_until_step(&run.cluster, 10 + 20 * (int64_t)i);
            cluster_resize(&run.cluster, counts[i]);
        }
        run_end_whole(&run, &run_endless);
    }
}

/* ---- At a fault point -----------------------------------------------------------------------*/

static void die_at(const char *point, int rank, int at, uint32_t replicas)
{
    RB_CLEANUP(rb_freep) char *fault = rb_format("%s:rank=%d:at=%d:do=kill", point, rank, at);
    struct run run;

    open_run(&run, &job, 2, replicas);
    run_with_death(&run, fault, 4);
    run_finish(&run, alone());
}

/* Deaths with half a microbatch under way, or with sums, votes or weights of some ranks. */
static void test_fault_points(void **state)
{
    static const struct {
        const char *point;
        int at;
    } cases[] = {
        {"worker.computed", 40}, {"worker.reduced", 40},   {"worker.vote", 30},
        {"worker.voted", 30},    {"worker.update", 37},    {"worker.gather", 30},
        {"worker.gathered", 30}, {"worker.committed", 30},
    };

    (void)state;
#ifndef RB_FAULTS
    skip();
#endif
    for (size_t i = 0; i < RB_COUNT(cases); i++)
        die_at(cases[i].point, i % 2 ? 0 : 3, cases[i].at, 2);
    die_at("worker.computed", 2, 33, 0);
    for (int at = 400; at < 416; at += 4) /* in the middle of a message */
        die_at("worker.frame", at / 4 % 4, at, at % 8 ? 2 : 0);
}

static int describe(void **state)
{
    (void)state;
    job = run_job;
    job.steps = STEPS;
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_count),
        cmocka_unit_test(test_resized),
        cmocka_unit_test(test_fault_points),
    };

    if (!run_begin(argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, describe, NULL);
}
