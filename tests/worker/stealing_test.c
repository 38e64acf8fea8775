/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of unequal speed that take microbatches from each other: the bits are those of one
 * worker. */
#include "tests/worker/run.h"

#include "base/fault.h"
#include "base/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* Rank r sleeps after each of its microbatches. */
#define SLOW                                                                                       \
    "worker.computed:rank=0:do=4ms,worker.computed:rank=1:do=1ms,worker.computed:rank=2:do=1ms"

static struct tiny_options job = {
    .samples = 203,
    .eval_samples = 45,
    .global_batch = 45, /* microbatches of 4, and one of 1 */
    .micro_batch = 4,
    .steps = 60,
    .hidden = 64,
    .eval_every = 25,
    .clip_norm = 0.5,
    .steals = true,
};

static char alone[33];

static int64_t count_stolen(const struct cluster *cluster)
{
    int64_t stolen = 0;

    for (int64_t s = 1; s < cluster->n_rows; s++)
        stolen += cluster->rows[s] ? cluster->rows[s]->stolen : 0;
    return stolen;
}

/* Resized on the way: each set of members finds out for itself. */
static void test_taken(void **state)
{
    struct tiny_options endless = job, sharded;
    struct run run;
    int64_t stolen;

    (void)state;
    endless.steps = 1000000; /* so that every change is in time */
    sharded = endless;
    for (sharded.replicas = 0; sharded.replicas < 3; sharded.replicas++) {
        run_open(&run, &sharded);
        run_arm(&run, SLOW);
        cluster_start(&run.cluster, 3, run.weights);
        run_disarm();
        cluster_until_step(&run.cluster, job.steps / 2);
        stolen = count_stolen(&run.cluster);
        print_message("%lld stolen in %lld steps\n", (long long)stolen,
                      (long long)run.cluster.n_rows - 1);
        assert_true(stolen > job.steps / 4);
        cluster_resize(&run.cluster, 2);
        cluster_until_step(&run.cluster, run.cluster.n_rows + job.steps / 2);
        run_end_whole(&run, &endless);
    }
}

/* A death after a microbatch, of the rank's own or of another's, and in the middle of everything
 * else. */
static void test_deaths(void **state)
{
    static const char *const deaths[] = {
        "worker.computed:rank=1:at=77:do=kill", "worker.computed:rank=0:at=40:do=kill",
        "worker.frame:rank=2:at=400:do=kill",   "worker.reduce:rank=1:at=60:do=kill",
        "worker.vote:rank=0:at=31:do=kill",
    };

    (void)state;
    for (size_t i = 0; i < RB_COUNT(deaths); i++) {
        char fault[512];
        struct run run;

        snprintf(fault, sizeof fault, "%s,%s", deaths[i], SLOW);
        run_open(&run, &job);
        run_with_death(&run, fault, 3);
        run_finish(&run, alone);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),
        cmocka_unit_test(test_deaths),
    };

    if (!run_begin(argc, argv))
        return 2;
    if (!rb_fault_describe(0, &(const char *){NULL}, &(const char *){NULL}))
        return 77; /* a build without fault points */
    run_alone(&job, alone);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
