/* SPDX-License-Identifier: Apache-2.0 */
/* Newcomers: fed while the others train, killed or silent on the way, prepared in vain; no member
 * waits for them unless they cannot keep up, and no bit changes. */
#include "tests/worker/run.h"

#include "base/fault.h"
#include "base/file.h"
#include "base/sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- Fed while the others train ---------------------------------------------------------------*/

/* Newcomers are there and fed, and no worker is told to go yet. */
static uint32_t feed(struct run *run, int *members, int n)
{
    uint32_t number = ++run->cluster.number;

    for (int i = 0; i < n; i++)
        members[i] =
            i < run->cluster.n_members ? run->cluster.members[i] : cluster_newcomer(&run->cluster);
    cluster_configure(&run->cluster, number, members, n, NULL);
    cluster_until_ready(&run->cluster, number, members, n);
    return number;
}

static void flip_to(struct run *run, uint32_t number, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        cluster_go(&run->cluster, members[i], number);
    cluster_until_flipped(&run->cluster, number, members, n);
    memcpy(run->cluster.members, members, (size_t)n * sizeof *members);
    run->cluster.n_members = n;
}

/* Workers that train receive nothing; newcomers receive more than the state. */
static void test_grown(void **state)
{
    struct run run;
    uint64_t once = 0;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_spare(&run.cluster, 2);
    for (int n = 2; n <= 3; n++) {
        cluster_until_step(&run.cluster, 60 * n - 80);
        cluster_resize(&run.cluster, n);
        for (int i = 0; i < n - 1; i++)
            assert_int_equal(run.cluster.workers[run.cluster.members[i]].bytes, 0);
        once = run.cluster.workers[run.cluster.members[n - 1]].bytes;
        assert_true(once > (uint64_t)run_endless.hidden * 3 * sizeof(float));
    }
    run_end(&run, &run_endless);
    run_close(&run);
}

/* Many log entries pass before all are told to go: the newcomer stays level. */
static void test_go_withheld(void **state)
{
    struct run run;
    int members[4];
    uint32_t number;
    int64_t from;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    number = feed(&run, members, 4);
    from = run.cluster.n_rows;
    cluster_until_step(&run.cluster, from + 100);
    assert_int_equal(run.cluster.workers[members[2]].unready, 0);
    flip_to(&run, number, members, 4);
    assert_true(run.cluster.workers[members[3]].bytes >
                100 * (uint64_t)run_endless.hidden * sizeof(int32_t));
    run_end(&run, &run_endless);
    run_close(&run);
}

/* The same newcomer is fed, dropped, and fed again from the beginning. */
static void test_feed_abandoned(void **state)
{
    struct run run;
    int members[3];

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_spare(&run.cluster, 1);
    for (int round = 0; round < 5; round++) {
        uint32_t number = feed(&run, members, 3);

        cluster_until_step(&run.cluster, run.cluster.n_rows + 4 * round);
        for (int i = 0; i < 3; i++) /* each worker may be the first to hear of it */
            cluster_abandon(&run.cluster, members[(i + round) % 3], number);
        run.cluster.spares[run.cluster.n_spares++] = members[2];
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(run.cluster.workers[members[i]].flipped, 1);
    cluster_resize(&run.cluster, 3);
    assert_int_equal(run.cluster.members[2], members[2]);
    run_end(&run, &run_endless);
    run_close(&run);
}

/* A newcomer dies before it is ready, while it is fed, and when all are told to go: the members
 * that train withdraw, and train on. */
static void test_newcomer_killed(void **state)
{
    struct run run;
    int members[3];

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_spare(&run.cluster, 4);
    for (int stage = 0; stage < 3; stage++) {
        uint32_t number;

        if (stage) {
            number = feed(&run, members, 3);
            cluster_until_step(&run.cluster, run.cluster.n_rows + stage);
        } else {
            number = ++run.cluster.number;
            memcpy(members, run.cluster.members, 2 * sizeof *members);
            members[2] = cluster_newcomer(&run.cluster);
            cluster_configure(&run.cluster, number, members, 3, NULL);
        }
        if (stage == 2)
            cluster_go(&run.cluster, members[0], number); /* the other member has no GO yet */
        cluster_kill(&run.cluster, members[2]);
        if (stage)
            cluster_until_unready(&run.cluster, number, members, 2);
        for (int i = 0; i < 2; i++)
            cluster_abandon(&run.cluster, members[i], number);
        cluster_until_step(&run.cluster, run.cluster.n_rows + 5);
    }
    cluster_resize(&run.cluster, 3);
    run_end(&run, &run_endless);
    run_close(&run);
}

/* A source dies: the others freeze, the newcomer lets go, and all align as after any crash. */
static void test_source_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        struct run run;
        int members[4], rest[3], n = 0;
        uint32_t number;

        run_open(&run, &run_endless);
        cluster_start(&run.cluster, 2, run.weights);
        number = feed(&run, members, 4);
        cluster_until_step(&run.cluster, run.cluster.n_rows + 10);
        cluster_kill(&run.cluster, members[victim]);
        for (int i = 0; i < 4; i++)
            if (i != victim)
                rest[n++] = members[i];
        cluster_until_unready(&run.cluster, number, rest, 3);
        run.cluster.n_members = 1;
        run.cluster.members[0] = rest[0];
        cluster_until_stopped(&run.cluster);
        cluster_move(&run.cluster, rest, 3, NULL);
        run_end(&run, &run_endless);
        run_close(&run);
    }
}

/* Memory of a worker, in bytes. */
static int64_t resident(const struct run *run, int worker)
{
    char path[64], text[128] = "";
    long long all, there;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/statm", (int)run->cluster.workers[worker].pid);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof text, file));
    fclose(file);
    assert_int_equal(sscanf(text, "%lld %lld", &all, &there), 2);
    return there * sysconf(_SC_PAGESIZE);
}

/* A newcomer that neither dies nor takes what it is sent is given up, because of its backlog or its
 * silence, whichever comes first; training waits half a second, and keeps no memory of it. */
static void test_newcomer_silent(void **state)
{
    /* Much to send; or so little, and slowly, that ten seconds of it are far from a backlog. */
    static const int64_t hidden[] = {4096, 64}, batch[] = {22, 1600};
    static const char *const reasons[] = {"keep up", "said nothing"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(hidden); i++) {
        struct tiny_options options = run_endless;
        struct run run;
        int members[2];
        uint32_t number;
        int64_t before, memory;

        options.eval_samples = 0;
        options.hidden = hidden[i];
        options.global_batch = batch[i];
        run_open(&run, &options);
        cluster_start(&run.cluster, 1, run.weights);
        number = feed(&run, members, 2);
        memory = resident(&run, members[0]);
        kill(run.cluster.workers[members[1]].pid, SIGSTOP);
        before = run.cluster.n_rows;
        cluster_until_step(&run.cluster, before + 5); /* past every level that it acknowledged */
        cluster_go(&run.cluster, members[0], number);
        cluster_until_unready(&run.cluster, number, members, 1);
        /* On a slow machine the silence of the first case comes before its backlog. */
        assert_true(strstr(run.cluster.workers[members[0]].reason, reasons[i]) ||
                    strstr(run.cluster.workers[members[0]].reason, reasons[1]));
        assert_true(run.cluster.n_rows > before + (RB_SANITIZED ? 2 : 10)); /* training went on */
        cluster_until_step(&run.cluster, run.cluster.n_rows + 10);
        if (!RB_SANITIZED && resident(&run, members[0]) > memory + (32 << 20))
            fail_msg("%lld bytes more than before",
                     (long long)(resident(&run, members[0]) - memory));
        cluster_abandon(&run.cluster, members[0], number);
        cluster_kill(&run.cluster, members[1]);
        cluster_resize(&run.cluster, 2);
        cluster_until_step(&run.cluster, run.cluster.n_rows + 10);
        run_close(&run);
    }
}

/* Two newcomers that take 5 ms for each step of a tenth of that: training waits for them, and they
 * are in at the first try. */
static void test_newcomers_slow(void **state)
{
    struct tiny_options options = run_endless;
    struct run run;
    int members[3];
    uint32_t number;

    (void)state;
    if (!rb_fault_describe(0, &(const char *){NULL}, &(const char *){NULL}))
        skip();
    options.hidden *= 4; /* 160 steps fill the queue */
    run_open(&run, &options);
    cluster_start(&run.cluster, 1, run.weights);
    run_arm(&run, "worker.follow:do=5ms");
    number = feed(&run, members, 3);
    run_disarm();
    cluster_until_step(&run.cluster, run.cluster.n_rows + 320);
    for (int i = 0; i < 3; i++)
        assert_int_equal(run.cluster.workers[members[i]].unready, 0);
    flip_to(&run, number, members, 3);
    run_end(&run, &options);
    run_close(&run);
}

/* The second of three ranks dies before it has voted.  What the others had of [0 1] [2 3] [4 5] is
 * theirs in [0 1 2] [3 4 5] too, and each computes one more microbatch. */
static void test_kept(void **state)
{
    struct run run;

    (void)state;
    if (!rb_fault_describe(0, &(const char *){NULL}, &(const char *){NULL}))
        skip();
    run_open(&run, &run_endless);
    run_with_death(&run, "worker.vote:rank=1:at=60:do=kill", 3);
    run_end(&run, &run_endless);
    assert_int_equal(run.cluster.workers[0].kept, 2);
    assert_int_equal(run.cluster.workers[2].kept, 2);
    run_close(&run);
}

/* ---- Preparations that fail -------------------------------------------------------------------*/

/* What is left after a death has a number that was kept for it, below the number of a configuration
 * that was prepared beside; one message configures it and says go, while its members freeze. */
static void test_foreseen(void **state)
{
    struct cluster *cluster;
    struct run run;
    int members[4];

    (void)state;
    run_open(&run, &run_endless);
    cluster = &run.cluster;
    cluster_start(cluster, 3, run.weights);
    memcpy(members, cluster->members, 3 * sizeof *members);
    members[3] = cluster_spawn(cluster);
    cluster->number = 5;
    cluster_configure(cluster, 5, members, 4, NULL);
    cluster_until_ready(cluster, 5, members, 4);

    cluster_kill(cluster, members[0]);
    for (int i = 1; i < 4; i++)
        cluster_abandon(cluster, members[i], 5);
    cluster->recovers = true;
    cluster_configure(cluster, 2, members + 1, 2, NULL);
    cluster->recovers = false;
    for (int i = 1; i < 3; i++)
        cluster_go(cluster, members[i], 2);
    cluster_until_flipped(cluster, 2, members + 1, 2);
    memcpy(cluster->members, members + 1, 2 * sizeof *members);
    cluster->n_members = 2;

    /* from an agent that had not heard */
    cluster_configure(cluster, 5, members + 1, 2, NULL);
    for (int i = 1; i < 3; i++)
        cluster_go(cluster, members[i], 5);
    cluster_until_step(cluster, cluster->n_rows + 5);
    for (int i = 1; i < 3; i++)
        assert_int_equal(cluster->workers[members[i]].flipped, 2);
    cluster_move(cluster, members + 1, 3, NULL); /* the newcomer is still of use */
    run_end(&run, &run_endless);
    run_close(&run);
}

static void test_abandoned(void **state)
{
    struct run run;
    int members[3], number;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    memcpy(members, run.cluster.members, 2 * sizeof *members);

    /* the newcomer dies before all are told to go: a member withdraws, or is told to */
    members[2] = cluster_spawn(&run.cluster);
    number = (int)++run.cluster.number;
    cluster_configure(&run.cluster, (uint32_t)number, members, 3, NULL);
    cluster_until_ready(&run.cluster, (uint32_t)number, members, 3);
    cluster_kill(&run.cluster, members[2]);
    for (int i = 0; i < 2; i++)
        cluster_go(&run.cluster, members[i], (uint32_t)number);
    cluster_until_unready(&run.cluster, (uint32_t)number, members, 2);
    for (int i = 0; i < 2; i++)
        cluster_abandon(&run.cluster, members[i], (uint32_t)number);

    /* all are ready, one is told to go, and then none may go: no member flips */
    members[2] = cluster_spawn(&run.cluster);
    number = (int)++run.cluster.number;
    cluster_configure(&run.cluster, (uint32_t)number, members, 3, NULL);
    cluster_until_ready(&run.cluster, (uint32_t)number, members, 3);
    cluster_go(&run.cluster, members[0], (uint32_t)number);
    cluster_go(&run.cluster, members[2], (uint32_t)number);
    cluster_until_step(&run.cluster, run.cluster.n_rows + 5);
    for (int i = 0; i < 3; i++)
        cluster_abandon(&run.cluster, members[i], (uint32_t)number);
    assert_int_equal(run.cluster.workers[members[2]].level, -1);

    /* the same newcomer serves in the next configuration, which takes the place of one that is
     * still being prepared */
    number = (int)++run.cluster.number;
    cluster_configure(&run.cluster, (uint32_t)number, members, 3, NULL);
    cluster_move(&run.cluster, members, 3, NULL);
    assert_true(run.cluster.workers[members[2]].bytes > 0);
    run_end(&run, &run_endless);
    run_close(&run);
}

static void test_unready(void **state)
{
    struct run run;
    char path[200];
    int members[2];

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 1, run.weights);
    members[0] = run.cluster.members[0];
    members[1] = cluster_spawn(&run.cluster);
    snprintf(path, sizeof path, "%s/plan.2", run.cluster.folder);
    assert_int_equal(rb_file_write(path, "\x08\x07nonsense", 10, NULL), 0);
    cluster_configure(&run.cluster, ++run.cluster.number, members, 2, NULL);
    cluster_until_unready(&run.cluster, run.cluster.number, members, 2);
    assert_non_null(strstr(run.cluster.workers[members[1]].reason, "plan"));
    run_end(&run, &run_endless);
    run_close(&run);
}

static void test_bad_start(void **state)
{
    struct run run;
    char path[200];
    int worker;

    (void)state;
    /* a model file that is none */
    run_open(&run, &run_endless);
    snprintf(path, sizeof path, "%s/model", run.cluster.folder);
    assert_int_equal(rb_file_write(path, "\x08\x01?", 3, NULL), 0);
    worker = cluster_spawn(&run.cluster);
    cluster_configure(&run.cluster, 1, &worker, 1, run.weights);
    cluster_until_unready(&run.cluster, 1, &worker, 1);
    assert_non_null(strstr(run.cluster.workers[worker].reason, "no model"));
    cluster_leave(&run.cluster, worker, path, 0); /* nothing to save: reported, and left */
    assert_true(run.cluster.workers[worker].saved[0].error[0]);
    run_close(&run);

    /* data that changed since the job was submitted */
    run_open(&run, &run_endless);
    snprintf(path, sizeof path, "%s/features.npy", run.cluster.folder);
    assert_int_equal(truncate(path, 1000), 0);
    worker = cluster_spawn(&run.cluster);
    cluster_configure(&run.cluster, 1, &worker, 1, run.weights);
    cluster_until_unready(&run.cluster, 1, &worker, 1);
    assert_non_null(strstr(run.cluster.workers[worker].reason, "features.npy"));
    run_close(&run);

    /* weights that are not there: both fail, with the reason and the code for bad data */
    run_open(&run, &run_endless);
    {
        int members[2] = {cluster_spawn(&run.cluster), cluster_spawn(&run.cluster)};

        cluster_configure(&run.cluster, 1, members, 2, "/nowhere/weights.safetensors");
        cluster_until_ready(&run.cluster, 1, members, 2);
        for (int i = 0; i < 2; i++)
            cluster_go(&run.cluster, members[i], 1);
        for (int i = 0; i < 2; i++) {
            cluster_until_exit(&run.cluster, members[i]);
            assert_int_equal(run.cluster.workers[members[i]].code, 65);
            assert_true(run.cluster.workers[members[i]].failed);
            assert_non_null(strstr(run.cluster.workers[members[i]].reason, "/nowhere"));
        }
    }
    run_close(&run);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grown),          cmocka_unit_test(test_go_withheld),
        cmocka_unit_test(test_feed_abandoned), cmocka_unit_test(test_newcomer_killed),
        cmocka_unit_test(test_source_killed),  cmocka_unit_test(test_newcomer_silent),
        cmocka_unit_test(test_newcomers_slow), cmocka_unit_test(test_kept),
        cmocka_unit_test(test_foreseen),       cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_unready),        cmocka_unit_test(test_bad_start),
    };

    if (!run_begin(argc, argv))
        return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
