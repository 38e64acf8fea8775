/* SPDX-License-Identifier: Apache-2.0 */
/* State in shards, with one and with two replicas: the bits are those of a run on one device,
 * whichever workers come, go and die; a block that no worker holds any more is reported lost. */
#include "tests/worker/run.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/sanitized.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    STEPS = 150,
    EACH = RB_SANITIZED ? 3 : 1, /* one in so many of the fault points */
};

static struct tiny_options job; /* run_job, in fewer steps */
static char reference[33];      /* its result on one device */

static void open_run(struct run *run, const struct tiny_options *options, uint32_t replicas)
{
    struct tiny_options sharded = *options;

    sharded.replicas = replicas;
    run_open(run, &sharded);
}

static void test_any_count(void **state)
{
    static const int counts[] = {2, 3, 5};

    (void)state;
    for (uint32_t replicas = 1; replicas <= 2; replicas++)
        for (size_t i = 0; i < RB_COUNT(counts); i++) {
            struct run run;

            open_run(&run, &job, replicas);
            cluster_start(&run.cluster, counts[i], run.weights);
            run_finish(&run, reference);
        }
}

/* No member may open a planned change: it would die of that.  Members that start open once. */
static void forbid_openings(void)
{
    setenv("RUBATO_FAULT", "worker.opening:at=2:do=kill", 1);
}

static void allow_openings(void)
{
    unsetenv("RUBATO_FAULT");
}

/* Members that go on take what they lack, newcomers are fed, and leavers alone hold nothing in the
 * end. */
static void test_resized(void **state)
{
    static const int counts[] = {3, 5, 2, 4, 2, 1};

    (void)state;
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        struct run run;

        open_run(&run, &run_endless, replicas);
        forbid_openings();
        cluster_spare(&run.cluster, 6); /* first: a run does not wait for processes to start */
        cluster_start(&run.cluster, 1, run.weights);
        for (size_t i = 0; i < RB_COUNT(counts); i++) {
            cluster_until_step(&run.cluster, 20 + 30 * (int64_t)i);
            cluster_resize(&run.cluster, counts[i]);
        }
        run_end_whole(&run, &run_endless);
        allow_openings();
    }
}

/* Two of three are new, and the blocks that only leavers have go to them by way of the one that
 * stays. */
static void test_moved(void **state)
{
    struct run run;
    int members[3];

    (void)state;
    open_run(&run, &run_endless, 1);
    forbid_openings();
    cluster_spare(&run.cluster, 2);
    cluster_start(&run.cluster, 3, run.weights);
    cluster_until_step(&run.cluster, 30);
    members[0] = cluster_newcomer(&run.cluster);
    members[1] = run.cluster.members[1];
    members[2] = cluster_newcomer(&run.cluster);
    cluster_move(&run.cluster, members, 3, NULL);
    run_end_whole(&run, &run_endless);
    allow_openings();
}

static void configure(struct cluster *cluster, int members[2], int stays)
{
    members[0] = stays;
    members[1] = cluster_newcomer(cluster);
    cluster_configure(cluster, ++cluster->number, members, 2, NULL);
    cluster_until_ready(cluster, cluster->number, members, 2);
}

/* The member that stays has taken what only leavers have when the newcomer dies.  Before its next
 * vote, with which it gives that up, it feeds another newcomer, to which those blocks are to go by
 * way of it again. */
static void test_given_up(void **state)
{
    struct run run;
    struct cluster *cluster = &run.cluster;
    int before[3], members[2];

    (void)state;
    if (!rb_fault_describe(0, &(const char *){NULL}, &(const char *){NULL}))
        skip();
    open_run(&run, &run_endless, 1);
    cluster_spare(cluster, 2);
    run_arm(&run, "worker.computed:do=200ms");
    cluster_start(cluster, 3, run.weights);
    run_disarm();
    memcpy(before, cluster->members, sizeof before);
    cluster_until_step(cluster, 2);
    configure(cluster, members, before[1]);
    kill(cluster->workers[members[1]].pid, SIGSTOP); /* so that members take, and do not flip */
    for (int i = 0; i < 3; i++)
        cluster_go(cluster, before[i], cluster->number);
    cluster_until_step(cluster, cluster->n_rows + 5);
    cluster_kill(cluster, members[1]);
    cluster_until_unready(cluster, cluster->number, members, 1);
    for (int i = 0; i < 3; i++)
        cluster_abandon(cluster, before[i], cluster->number);
    configure(cluster, members, before[1]);
    cluster_until_step(cluster, cluster->n_rows + 2);
    for (int i = 0; i < 3; i++)
        cluster_go(cluster, before[i], cluster->number);
    cluster_go(cluster, members[1], cluster->number);
    cluster_until_flipped(cluster, cluster->number, members, 2);
    memcpy(cluster->members, members, sizeof members);
    cluster->n_members = 2;
    run_end_whole(&run, &run_endless);
}

/* With two replicas no single death loses anything, again and again. */
static void test_killed(void **state)
{
    (void)state;
    for (int which = 0; which < 2; which++) {
        struct run run;

        open_run(&run, &run_endless, 2);
        cluster_start(&run.cluster, 5, run.weights);
        for (int64_t i = 0; i < 4; i++) {
            cluster_until_step(&run.cluster, 30 + 40 * i);
            cluster_kill(&run.cluster, run.cluster.members[which ? run.cluster.n_members - 1 : 0]);
            cluster_recover(&run.cluster);
        }
        assert_int_equal(run.cluster.n_members, 1);
        run_end_whole(&run, &run_endless);
    }
}

/* ---- At a fault point -----------------------------------------------------------------------*/

static void die_at(const char *point, int rank, int at, int workers)
{
    RB_CLEANUP(rb_freep) char *fault = rb_format("%s:rank=%d:at=%d:do=kill", point, rank, at);
    struct run run;

    open_run(&run, &job, 2);
    run_with_death(&run, fault, workers);
    run_finish(&run, reference);
}

static void test_fault_points(void **state)
{
    static const struct {
        const char *point;
        int at;
    } cases[] = {
        {"worker.reduced", 40}, {"worker.vote", 30},      {"worker.voted", 30},
        {"worker.update", 77},  {"worker.gather", 30},    {"worker.gathered", 30},
        {"worker.row", 30},     {"worker.committed", 30},
    };

    (void)state;
#ifndef RB_FAULTS
    skip();
#endif
    for (size_t i = 0; i < RB_COUNT(cases); i += EACH)
        for (int rank = 0; rank < 3; rank += 2)
            die_at(cases[i].point, rank, cases[i].at, 3);
    /* In the middle of a message: a sum, a vote, or weights. */
    for (int at = 400; at < 424; at += 4 * EACH)
        die_at("worker.frame", 1, at, at % 8 ? 4 : 3);
}

/* The member that was to feed the newcomers dies right after the flip.  No member reports the flip,
 * so the leavers still exist, and have what the dead member alone had among those that stay. */
static void test_killed_behind_the_flip(void **state)
{
    struct run run;
    struct cluster *cluster = &run.cluster;
    int moved[4], rest[3];
    uint32_t number;

    (void)state;
#ifndef RB_FAULTS
    skip();
#endif
    open_run(&run, &run_endless, 2);
    run_arm(&run, "worker.entered:rank=0:at=2:do=kill");
    cluster_spare(cluster, 2);
    cluster_start(cluster, 4, run.weights);
    run_disarm();
    cluster_until_step(cluster, 30);
    moved[0] = cluster->members[0];
    moved[1] = cluster->members[3];
    moved[2] = cluster_newcomer(cluster);
    moved[3] = cluster_newcomer(cluster);
    number = ++cluster->number;
    cluster_configure(cluster, number, moved, 4, NULL);
    cluster_until_ready(cluster, number, moved, 4);
    for (int i = 0; i < 4; i++)
        cluster_go(cluster, moved[i], number);
    for (int i = 1; i < 3; i++)
        cluster_go(cluster, cluster->members[i], number);
    cluster_until_exit(cluster, moved[0]);
    cluster_until_frozen(cluster, number, moved, 4, true);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(cluster->workers[moved[i]].flipped, number);
    memcpy(rest, cluster->members + 1, sizeof rest);
    memcpy(cluster->members, rest, sizeof rest);
    cluster->n_members = 3;
    cluster->recovers = true;
    cluster_move(cluster, rest, 3, NULL);
    cluster->recovers = false;
    for (int i = 2; i < 4; i++)
        cluster_leave(cluster, moved[i], NULL, 0);
    run_end_whole(&run, &run_endless);
}

/* ---- Gathered, to be saved ------------------------------------------------------------------*/

/* All but the first member give it what they have; it stands then. */
static struct cluster_worker *gather(struct cluster *cluster)
{
    int first = cluster->members[0];
    uint32_t number = ++cluster->number;

    cluster->stands = true;
    cluster_configure(cluster, number, &first, 1, NULL);
    cluster->stands = false;
    cluster_until_ready(cluster, number, &first, 1);
    for (int i = 0; i < cluster->n_members; i++)
        cluster_go(cluster, cluster->members[i], number);
    cluster_until_flipped(cluster, number, &first, 1);
    assert_true(cluster->workers[first].frozen);
    return &cluster->workers[first];
}

/* The first has all of the state, as it was at the flip, however late the order to save comes. */
static void test_gathered(void **state)
{
    (void)state;
    for (uint32_t replicas = 1; replicas <= 2; replicas++) {
        struct cluster_worker *gatherer;
        struct run run;
        char folder[160], checkpoint[256];
        int64_t level;
        int first, at;

        open_run(&run, &run_endless, replicas);
        snprintf(folder, sizeof folder, "%s/park", run.cluster.folder);
        cluster_start(&run.cluster, 4, run.weights);
        cluster_until_step(&run.cluster, 30);
        gatherer = gather(&run.cluster);
        level = gatherer->level;
        first = run.cluster.members[0];
        at = cluster_until_saved(&run.cluster, first,
                                 cluster_save(&run.cluster, first, folder, false));
        assert_string_equal(gatherer->saved[at].error, "");
        assert_int_equal(gatherer->saved[at].step, level);
        cluster_disconnect(&run.cluster, first);
        cluster_connect(&run.cluster, first, 0);
        assert_true(gatherer->hello->hello->frozen);
        assert_int_equal(gatherer->hello->hello->level, level);
        cluster_leave(&run.cluster, first, folder, 0);
        at = gatherer->n_saved - 1;
        assert_string_equal(gatherer->saved[at].error, "");
        assert_int_equal(gatherer->saved[at].step, level);
        assert_int_equal(gatherer->rows, level);
        snprintf(checkpoint, sizeof checkpoint, "%s", gatherer->saved[at].folder);
        for (int i = 1; i < 4; i++)
            cluster_leave(&run.cluster, run.cluster.members[i], NULL, 0);
        cluster_start(&run.cluster, 2, checkpoint);
        run_end_whole(&run, &run_endless);
    }
}

/* All members go on together, or those that gave what they had without the one that had all of
 * it. */
static void test_gathered_in_vain(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        struct run run;
        struct cluster *cluster = &run.cluster;
        int members[4];

        open_run(&run, &run_endless, 2);
        cluster_start(cluster, 4, run.weights);
        cluster_until_step(cluster, 30);
        gather(cluster);
        if (dies) {
            cluster_kill(cluster, cluster->members[0]);
            memmove(cluster->members, cluster->members + 1, 3 * sizeof *members);
            cluster->n_members = 3;
        }
        memcpy(members, cluster->members, sizeof members);
        cluster->recovers = true;
        cluster_move(cluster, members, cluster->n_members, NULL);
        cluster->recovers = false;
        cluster_until_step(cluster, 60);
        run_end_whole(&run, &run_endless);
    }
}

/* ---- What cannot be saved by others ---------------------------------------------------------*/

static bool all_failed(struct cluster *cluster, int64_t argument)
{
    (void)argument;
    for (int i = 0; i < cluster->n_members; i++)
        if (!cluster->workers[cluster->members[i]].failed)
            return false;
    return true;
}

/* One replica: a death loses its blocks, and the others report that instead of going on without. */
static void test_lost(void **state)
{
    struct run run;
    struct cluster *cluster = &run.cluster;
    uint32_t number = 2;

    (void)state;
    open_run(&run, &run_endless, 1);
    cluster_start(cluster, 3, run.weights);
    cluster_until_step(cluster, 30);
    cluster_kill(cluster, cluster->members[1]);
    cluster_until_stopped(cluster);
    cluster->members[1] = cluster->members[2];
    cluster->n_members = 2;
    cluster->recovers = true;
    cluster_configure(cluster, number, cluster->members, 2, NULL);
    cluster_until_ready(cluster, number, cluster->members, 2);
    for (int i = 0; i < 2; i++)
        cluster_go(cluster, cluster->members[i], number);
    cluster_until(cluster, all_failed, 0, "the loss to be told");
    for (int i = 0; i < 2; i++)
        assert_non_null(
            strstr(cluster->workers[cluster->members[i]].reason, "no member holds block"));
    run_close(&run);
}

/* ---- Saving ---------------------------------------------------------------------------------*/

static void assert_same_file(const char *a, const char *b)
{
    struct rb_buffer left = {0}, right = {0};

    assert_int_equal(rb_file_read(a, 1 << 28, &left, NULL), 0);
    assert_int_equal(rb_file_read(b, 1 << 28, &right, NULL), 0);
    assert_int_equal(left.size, right.size);
    assert_memory_equal(left.data, right.data, left.size);
    rb_buffer_done(&left);
    rb_buffer_done(&right);
}

/* Checkpoints are those of one device to the byte, and a run in other shards goes on from one. */
static void test_checkpoints(void **unused)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json"};
    struct run alone, run, again;
    char folder[2][96];

    (void)unused;
    for (int i = 0; i < 2; i++) {
        snprintf(folder[i], sizeof folder[i], "/tmp/rubato-shards-%d-XXXXXX", i);
        assert_non_null(mkdtemp(folder[i]));
    }
    open_run(&alone, &job, 0);
    open_run(&run, &job, 2);
    alone.cluster.checkpoint_path = folder[0];
    run.cluster.checkpoint_path = folder[1];
    alone.cluster.checkpoint_every = run.cluster.checkpoint_every = 50;
    alone.cluster.checkpoint_keep = run.cluster.checkpoint_keep = 0;
    cluster_start(&alone.cluster, 1, alone.weights);
    cluster_start(&run.cluster, 4, run.weights);
    run_finish(&run, reference);
    run_finish(&alone, reference);
    for (int64_t step = 50; step <= job.steps; step += 50)
        for (size_t i = 0; i < RB_COUNT(files); i++) {
            RB_CLEANUP(rb_freep)
            char *a = rb_format("%s/step-%08d/%s", folder[0], (int)step, files[i]);
            RB_CLEANUP(rb_freep)
            char *b = rb_format("%s/step-%08d/%s", folder[1], (int)step, files[i]);

            assert_same_file(a, b);
        }
    open_run(&again, &job, 1);
    RB_CLEANUP(rb_freep) char *from = rb_format("%s/step-00000050", folder[1]);
    char digest[33];

    cluster_start(&again.cluster, 3, from);
    cluster_finish(&again.cluster, digest);
    assert_string_equal(digest, reference);
    run_close(&again);
    for (int i = 0; i < 2; i++)
        rb_file_remove(folder[i], NULL);
}

/* Saves while the job trains: any rank has the weights, and is given the rest for a checkpoint. */
static void test_saves(void **unused)
{
    RB_CLEANUP(rb_freep) char *folder = NULL;
    struct run run;

    (void)unused;
    open_run(&run, &run_endless, 1);
    folder = rb_format("%s/asked", run.cluster.folder);
    cluster_start(&run.cluster, 3, run.weights);
    for (int i = 0; i < 6; i++) {
        struct cluster_worker *one = &run.cluster.workers[run.cluster.members[i % 3]];
        uint64_t request = cluster_save(&run.cluster, run.cluster.members[i % 3], folder, i < 3);
        int at = cluster_until_saved(&run.cluster, run.cluster.members[i % 3], request);

        assert_string_equal(one->saved[at].error, "");
        assert_true(one->saved[at].step >= 0);
    }
    run_end_whole(&run, &run_endless);
}

/* The other optimizers: fewer parts, or none, and SGD's decay needs the weights. */
static void test_variants(void **unused)
{
    static const struct {
        bool sgd, no_momentum;
    } variants[] = {{true, false}, {true, true}};

    (void)unused;
    for (size_t i = 0; i < RB_COUNT(variants); i++) {
        struct tiny_options options = run_endless;
        struct run run;

        options.sgd = variants[i].sgd;
        options.no_momentum = variants[i].no_momentum;
        open_run(&run, &options, 1);
        cluster_spare(&run.cluster, 1);
        cluster_start(&run.cluster, 3, run.weights);
        cluster_until_step(&run.cluster, 20);
        cluster_resize(&run.cluster, 4);
        cluster_until_step(&run.cluster, 60);
        cluster_resize(&run.cluster, 2);
        run_end_whole(&run, &options);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_count),
        cmocka_unit_test(test_resized),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_fault_points),
        cmocka_unit_test(test_killed_behind_the_flip),
        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_gathered_in_vain),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_saves),
        cmocka_unit_test(test_variants),
    };

    if (!run_begin(argc, argv))
        return 2;
    job = run_job;
    job.steps = STEPS;
    run_alone(&job, reference);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
