/* SPDX-License-Identifier: Apache-2.0 */
/* The heart of it: whatever happens to the workers, the bits of the result are the same. */
#include "tests/worker/cluster.h"
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/sanitized.h"
#include "base/buffer.h"
#include "base/file.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *program;

enum { HIDDEN = RB_SANITIZED ? 400 : 4096, STEPS = RB_SANITIZED ? 600 : 2000 };
static uint64_t storms = RB_SANITIZED ? 1 : 2;

enum { MOST = 5 };

/* Long enough that things happen on the way, short enough for a test: about a second. */
static const struct tiny_options job = {
    .samples = 203, /* batches straddle epochs */
    .eval_samples = 45,
    .global_batch = 22, /* microbatches of 4 4 4 4 4 2 */
    .micro_batch = 4,
    .steps = STEPS,
    .hidden = HIDDEN,
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

/* `job`, but so long that no change is late for it; and what it gives on one device. */
static struct tiny_options longer;
static char longer_reference[33];

static void make_longer_reference(void)
{
    struct run run;

    longer = job;
    longer.steps *= 4;
    open_run(&run, &longer);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_finish(&run.cluster, longer_reference);
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
    char digest[33];

    (void)state;
    make_longer_reference();
    open_run(&run, &longer);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_spare(&run.cluster, 7);
    for (size_t i = 0; i < RB_COUNT(counts); i++) {
        cluster_until_step(&run.cluster, 20 + 40 * (int64_t)i);
        cluster_resize(&run.cluster, counts[i]);
        assert_int_equal(run.cluster.n_members, counts[i]);
    }
    assert_true(run.cluster.n_rows <= longer.steps); /* all of it happened while it trained */
    cluster_finish(&run.cluster, digest);
    assert_string_equal(digest, longer_reference);
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

/* ---- Fed while the others train ---------------------------------------------------------------*/

/* Newcomers are there and fed, and nobody is told to go yet. */
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

/* Those who train receive nothing; newcomers receive more than the state. */
static void test_grown(void **state)
{
    struct run run;
    uint64_t once = 0;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_spare(&run.cluster, 2);
    for (int n = 2; n <= 3; n++) {
        cluster_until_step(&run.cluster, 60 * n - 80);
        cluster_resize(&run.cluster, n);
        for (int i = 0; i < n - 1; i++)
            assert_int_equal(run.cluster.workers[run.cluster.members[i]].bytes, 0);
        once = run.cluster.workers[run.cluster.members[n - 1]].bytes;
        assert_true(once > (uint64_t)job.hidden * 3 * sizeof(float));
    }
    assert_true(run.cluster.n_rows <= job.steps);
    compare_with_reference(&run);
    close_run(&run);
}

/* Many log entries pass before all are told to go: the newcomer stays level. */
static void test_go_withheld(void **state)
{
    struct run run;
    int members[4];
    uint32_t number;
    int64_t from;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 2, run.weights);
    number = feed(&run, members, 4);
    from = run.cluster.n_rows;
    cluster_until_step(&run.cluster, from + 100);
    assert_int_equal(run.cluster.workers[members[2]].unready, 0);
    flip_to(&run, number, members, 4);
    assert_true(run.cluster.workers[members[3]].bytes >
                100 * (uint64_t)job.hidden * sizeof(int32_t));
    assert_true(run.cluster.n_rows <= job.steps);
    compare_with_reference(&run);
    close_run(&run);
}

/* The same newcomer is fed, dropped, and fed again from the beginning. */
static void test_feed_abandoned(void **state)
{
    struct run run;
    int members[3];

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_spare(&run.cluster, 1);
    for (int round = 0; round < 5; round++) {
        uint32_t number = feed(&run, members, 3);

        cluster_until_step(&run.cluster, run.cluster.n_rows + 4 * round);
        for (int i = 0; i < 3; i++) /* each of them may be the first to hear of it */
            cluster_abandon(&run.cluster, members[(i + round) % 3], number);
        run.cluster.spares[run.cluster.n_spares++] = members[2];
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(run.cluster.workers[members[i]].flipped, 1);
    cluster_resize(&run.cluster, 3);
    assert_int_equal(run.cluster.members[2], members[2]);
    compare_with_reference(&run);
    close_run(&run);
}

/* A newcomer dies before it is ready, while it is fed, and when all are told to go: those who train
 * withdraw, and train on. */
static void test_newcomer_killed(void **state)
{
    struct run run;
    int members[3];

    (void)state;
    open_run(&run, &job);
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
            cluster_go(&run.cluster, members[0], number); /* the other one's vote still lacks */
        cluster_kill(&run.cluster, members[2]);
        if (stage)
            cluster_until_unready(&run.cluster, number, members, 2);
        for (int i = 0; i < 2; i++)
            cluster_abandon(&run.cluster, members[i], number);
        cluster_until_step(&run.cluster, run.cluster.n_rows + 5);
    }
    cluster_resize(&run.cluster, 3);
    assert_true(run.cluster.n_rows <= job.steps);
    compare_with_reference(&run);
    close_run(&run);
}

/* A source dies: the others freeze, the newcomer lets go, and all align as after any crash. */
static void test_source_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        struct run run;
        int members[4], rest[3], n = 0;
        uint32_t number;

        open_run(&run, &job);
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
        compare_with_reference(&run);
        close_run(&run);
    }
}

/* A newcomer that neither dies nor takes what it is sent is given up, for all that waits for it or
 * for its silence, whatever comes first; training does not notice. */
static void test_newcomer_silent(void **state)
{
    static const int64_t hidden[] = {4096, 64},
                         batch[] = {22, 400}; /* much to say; little, slowly */
    static const char *const reasons[] = {"keep up", "said nothing"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(hidden); i++) {
        struct tiny_options options = job;
        struct run run;
        int members[2];
        uint32_t number;
        int64_t before;

        options.steps = 1000000;
        options.eval_samples = 0;
        options.hidden = hidden[i];
        options.global_batch = batch[i];
        open_run(&run, &options);
        cluster_start(&run.cluster, 1, run.weights);
        number = feed(&run, members, 2);
        kill(run.cluster.workers[members[1]].pid, SIGSTOP);
        before = run.cluster.n_rows;
        cluster_until_step(&run.cluster, before + 5); /* no level that it said is the present one */
        cluster_go(&run.cluster, members[0], number);
        cluster_until_unready(&run.cluster, number, members, 1);
        /* On a slow machine the first one's silence comes before its backlog. */
        assert_true(strstr(run.cluster.workers[members[0]].reason, reasons[i]) ||
                    strstr(run.cluster.workers[members[0]].reason, reasons[1]));
        assert_true(run.cluster.n_rows > before + (RB_SANITIZED ? 20 : 100));
        cluster_abandon(&run.cluster, members[0], number);
        cluster_kill(&run.cluster, members[1]);
        cluster_resize(&run.cluster, 2);
        cluster_until_step(&run.cluster, run.cluster.n_rows + 10);
        close_run(&run);
    }
}

/* The middle one of three dies: what the others had of [0 1] [2 3] [4 5] is theirs in [0 1 2]
 * [3 4 5] too, and each computes one microbatch of the step.  Who was told of a commit by the dead
 * one gives its state to the other, whose sums are then of a step that is past. */
static void test_kept(void **state)
{
    uint32_t kept[2];
    struct run run;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 3, run.weights);
    cluster_until_step(&run.cluster, 60);
    cluster_kill(&run.cluster, run.cluster.members[1]);
    cluster_recover(&run.cluster);
    compare_with_reference(&run);
    for (int i = 0; i < 2; i++)
        kept[i] = run.cluster.workers[i * 2].kept;
    assert_true(kept[0] == 2 || kept[1] == 2);
    assert_true(kept[0] % 2 == 0 && kept[0] + kept[1] <= 4);
    close_run(&run);
}

/* ---- Stopping and starting again -------------------------------------------------------------*/

/* Saved on leaving, in the middle of a step; started again with another count. */
static void test_parked(void **state)
{
    struct run run;
    char folder[160], checkpoint[256];
    int first;

    (void)state;
    open_run(&run, &job);
    snprintf(folder, sizeof folder, "%s/park", run.cluster.folder);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_until_step(&run.cluster, 100);
    first = run.cluster.members[0];
    cluster_leave(&run.cluster, first, folder, 0);
    assert_int_equal(run.cluster.workers[first].n_saved, 1);
    assert_string_equal(run.cluster.workers[first].saved[0].error, "");
    assert_int_equal(run.cluster.workers[first].saved[0].request, 0);
    assert_true(run.cluster.workers[first].saved[0].step >= 99);
    snprintf(checkpoint, sizeof checkpoint, "%s", run.cluster.workers[first].saved[0].folder);
    cluster_leave(&run.cluster, run.cluster.members[1], NULL, 0);
    cluster_start(&run.cluster, 3, checkpoint);
    compare_with_reference(&run);
    close_run(&run);
}

/* Everyone dies at once; the newest periodic checkpoint is where it goes on. */
static void test_checkpoints(void **state)
{
    struct run run;
    char folder[160], latest[200], path[256];
    struct rb_buffer name = {0};

    (void)state;
    open_run(&run, &job);
    snprintf(folder, sizeof folder, "%s/checkpoints", run.cluster.folder);
    run.cluster.checkpoint_path = folder;
    run.cluster.checkpoint_every = 25;
    run.cluster.checkpoint_keep = 2;
    cluster_start(&run.cluster, 3, run.weights);
    cluster_until_step(&run.cluster, 130);
    for (int i = 0; i < 3; i++)
        cluster_kill(&run.cluster, run.cluster.members[i]);
    snprintf(latest, sizeof latest, "%s/latest", folder);
    assert_int_equal(rb_file_read(latest, 64, &name, NULL), 0);
    name.data[strcspn(name.data, "\n")] = '\0';
    snprintf(path, sizeof path, "%s/%s", folder, name.data);
    assert_true(strcmp(name.data, "step-00000100") >= 0);
    cluster_start(&run.cluster, 2, path);
    rb_buffer_done(&name);
    compare_with_reference(&run);
    snprintf(path, sizeof path, "%s/step-%08d", folder, (int)job.steps);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/step-%08d", folder, (int)job.steps - 25);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/step-%08d", folder, (int)job.steps - 50);
    assert_int_equal(access(path, F_OK), -1);
    close_run(&run);
}

/* Saves and exports while it trains; any rank writes the same. */
static void test_saves(void **state)
{
    struct run run;
    uint64_t requests[4];
    char folder[4][160], path[4][200], one[33], two[33];
    int64_t steps[4];

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_until_step(&run.cluster, 20);
    for (int i = 0; i < 4; i++) {
        snprintf(folder[i], sizeof folder[i], "%s/save-%d", run.cluster.folder, i);
        requests[i] = cluster_save(&run.cluster, run.cluster.members[i % 2], folder[i], i >= 2);
    }
    for (int i = 0; i < 4; i++) {
        const struct cluster_worker *by = &run.cluster.workers[run.cluster.members[i % 2]];
        int at = cluster_until_saved(&run.cluster, run.cluster.members[i % 2], requests[i]);

        assert_string_equal(by->saved[at].error, "");
        steps[i] = by->saved[at].step;
        assert_true(steps[i] >= 19 && steps[i] < job.steps);
        snprintf(path[i], sizeof path[i], "%s", by->saved[at].folder);
    }
    assert_string_equal(path[2], folder[2]); /* an export lies in the folder itself */
    compare_with_reference(&run);
    /* both checkpoints lead to the reference */
    for (int i = 0; i < 2; i++) {
        cluster_start(&run.cluster, 1, path[i]);
        cluster_finish(&run.cluster, i ? two : one);
        assert_string_equal(i ? two : one, reference);
    }
    close_run(&run);
}

/* ---- Agents ---------------------------------------------------------------------------------*/

/* Training goes on without an agent; the next one is told everything that happened. */
static void test_agent_gone(void **state)
{
    struct run run;
    int a, b;
    int64_t known;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 2, run.weights);
    a = run.cluster.members[0];
    b = run.cluster.members[1];
    cluster_until_step(&run.cluster, 20);
    cluster_disconnect(&run.cluster, a);
    known = run.cluster.workers[a].rows;
    cluster_until_step(&run.cluster, known + 60); /* b still tells */
    cluster_disconnect(&run.cluster, b);
    cluster_connect(&run.cluster, a, known);
    assert_int_equal(run.cluster.workers[a].hello->hello->active, 1);
    assert_true(run.cluster.workers[a].hello->hello->level >= known + 59);
    cluster_connect(&run.cluster, b, 5); /* it wants rows that it had before: sent again */
    cluster_connect(&run.cluster, b, run.cluster.workers[a].rows); /* replaces the other */
    assert_int_equal(run.cluster.workers[b].hellos, 3);
    compare_with_reference(&run);
    for (int64_t s = 1; s <= job.steps; s++)
        assert_non_null(run.cluster.rows[s]);
    close_run(&run);
}

/* An order of an older leader, or the same once more, changes nothing. */
static void test_old_orders(void **state)
{
    struct run run;
    int a;

    (void)state;
    open_run(&run, &job);
    run.cluster.fence = 7;
    cluster_start(&run.cluster, 2, run.weights);
    a = run.cluster.members[0];
    cluster_until_step(&run.cluster, 10);
    run.cluster.fence = 6;
    cluster_go(&run.cluster, a, 99);
    cluster_send(&run.cluster, a,
                 &(Rb__ToWorker){.base = PROTOBUF_C_MESSAGE_INIT(&rb__to_worker__descriptor),
                                 .leave = &(Rb__Leave)RB__LEAVE__INIT});
    run.cluster.fence = 8;
    cluster_configure(&run.cluster, 1, run.cluster.members, 2, NULL);
    cluster_go(&run.cluster, a, 1);
    cluster_abandon(&run.cluster, a, 1); /* it is active: too late */
    cluster_abandon(&run.cluster, a, 50);
    cluster_resize(&run.cluster, 3);
    compare_with_reference(&run);
    close_run(&run);
}

/* SIGTERM ends a worker in order; the others freeze and go on. */
static void test_terminated(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_until_step(&run.cluster, 40);
    cluster_terminate(&run.cluster, run.cluster.members[0]);
    cluster_recover(&run.cluster);
    compare_with_reference(&run);
    close_run(&run);
}

/* ---- Preparations that fail -------------------------------------------------------------------*/

/* What is left after a death has a number that was kept for it, below that of what was prepared
 * beside; it is configured and told to go in one, while its members freeze. */
static void test_foreseen(void **state)
{
    struct cluster *cluster;
    struct run run;
    int members[4];

    (void)state;
    open_run(&run, &job);
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

    /* of an agent that had not heard */
    cluster_configure(cluster, 5, members + 1, 2, NULL);
    for (int i = 1; i < 3; i++)
        cluster_go(cluster, members[i], 5);
    cluster_until_step(cluster, cluster->n_rows + 5);
    for (int i = 1; i < 3; i++)
        assert_int_equal(cluster->workers[members[i]].flipped, 2);
    cluster_move(cluster, members + 1, 3, NULL); /* the newcomer is of use still */
    compare_with_reference(&run);
    close_run(&run);
}

static void test_abandoned(void **state)
{
    struct run run;
    int members[3], number;

    (void)state;
    open_run(&run, &job);
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

    /* all are ready, one is told to go and then none may: nothing flips */
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

    /* the same newcomer serves in the next one, which takes the place of one still in preparation
     */
    number = (int)++run.cluster.number;
    cluster_configure(&run.cluster, (uint32_t)number, members, 3, NULL);
    cluster_move(&run.cluster, members, 3, NULL);
    assert_true(run.cluster.workers[members[2]].bytes > 0);
    assert_true(run.cluster.n_rows <= job.steps);
    compare_with_reference(&run);
    close_run(&run);
}

static void test_unready(void **state)
{
    struct run run;
    char path[200];
    int members[2];

    (void)state;
    open_run(&run, &job);
    cluster_start(&run.cluster, 1, run.weights);
    members[0] = run.cluster.members[0];
    members[1] = cluster_spawn(&run.cluster);
    snprintf(path, sizeof path, "%s/plan.2", run.cluster.folder);
    assert_int_equal(rb_file_write(path, "\x08\x07nonsense", 10, NULL), 0);
    cluster_configure(&run.cluster, ++run.cluster.number, members, 2, NULL);
    cluster_until_unready(&run.cluster, run.cluster.number, members, 2);
    assert_non_null(strstr(run.cluster.workers[members[1]].reason, "plan"));
    compare_with_reference(&run);
    close_run(&run);
}

static void test_bad_start(void **state)
{
    struct run run;
    char path[200];
    int worker;

    (void)state;
    /* a model that is none */
    open_run(&run, &job);
    snprintf(path, sizeof path, "%s/model", run.cluster.folder);
    assert_int_equal(rb_file_write(path, "\x08\x01?", 3, NULL), 0);
    worker = cluster_spawn(&run.cluster);
    cluster_configure(&run.cluster, 1, &worker, 1, run.weights);
    cluster_until_unready(&run.cluster, 1, &worker, 1);
    assert_non_null(strstr(run.cluster.workers[worker].reason, "no model"));
    cluster_leave(&run.cluster, worker, path, 0); /* nothing to save: said so, and left */
    assert_true(run.cluster.workers[worker].saved[0].error[0]);
    close_run(&run);

    /* data that changed since the job was submitted */
    open_run(&run, &job);
    snprintf(path, sizeof path, "%s/features.npy", run.cluster.folder);
    assert_int_equal(truncate(path, 1000), 0);
    worker = cluster_spawn(&run.cluster);
    cluster_configure(&run.cluster, 1, &worker, 1, run.weights);
    cluster_until_unready(&run.cluster, 1, &worker, 1);
    assert_non_null(strstr(run.cluster.workers[worker].reason, "features.npy"));
    close_run(&run);

    /* weights that are not there: both fail, with the reason and the code for bad data */
    open_run(&run, &job);
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
    close_run(&run);
}

/* ---- Steps that do not count ----------------------------------------------------------------*/

static void test_not_finite(void **state)
{
    struct tiny_options options = job;
    struct run run;
    int members[2];

    (void)state;
    options.bad_feature = (double)INFINITY;
    open_run(&run, &options);
    cluster_start(&run.cluster, 2, run.weights);
    memcpy(members, run.cluster.members, sizeof members);
    for (int i = 0; i < 2; i++) {
        cluster_until_exit(&run.cluster, members[i]);
        assert_int_equal(run.cluster.workers[members[i]].code, 65);
        assert_non_null(strstr(run.cluster.workers[members[i]].reason, "not finite"));
    }
    assert_int_equal(run.cluster.n_rows, 4); /* the limit is 3 */
    for (int64_t s = 1; s < run.cluster.n_rows; s++)
        assert_true(run.cluster.rows[s]->skipped);
    close_run(&run);
}

static void test_no_targets(void **state)
{
    struct tiny_options options = job;
    char digest[2][33];

    (void)state;
    options.no_targets = true;
    options.eval_samples = 0;
    options.steps = 30;
    for (int i = 0; i < 2; i++) {
        struct run run;

        open_run(&run, &options);
        cluster_start(&run.cluster, 1 + 2 * i, run.weights);
        cluster_finish(&run.cluster, digest[i]);
        assert_int_equal(run.cluster.n_rows, 31);
        assert_true(run.cluster.rows[30]->skipped && run.cluster.rows[30]->loss == 0);
        close_run(&run);
    }
    assert_string_equal(digest[0], digest[1]);
}

/* Other optimizers, other shapes: more ranks than microbatches, one microbatch. */
static void test_variants(void **state)
{
    struct tiny_options variants[4];
    char digest[2][33];

    (void)state;
    for (int i = 0; i < 4; i++) {
        variants[i] = job;
        variants[i].steps = 60;
        variants[i].hidden = 300;
    }
    variants[0].sgd = true;
    variants[1].sgd = variants[1].no_momentum = true;
    variants[1].clip_norm = 0;
    variants[2].micro_batch = variants[2].global_batch = 7;
    variants[3].micro_batch = 11; /* two of them */
    variants[3].eval_samples = 5; /* less than a microbatch */
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 2; k++) {
            struct run run;

            open_run(&run, &variants[i]);
            cluster_start(&run.cluster, 1 + 3 * k, run.weights);
            cluster_finish(&run.cluster, digest[k]);
            close_run(&run);
        }
        assert_string_equal(digest[0], digest[1]);
    }
}

/* ---- Storms -----------------------------------------------------------------------------------
 * Random growth, shrinking, deaths before, during and after a flip, agents that come and go:
 * whatever the order, the same bits. */

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

/* Members of the present configuration that stay, and newcomers: a random next set. */
static int choose_members(struct cluster *cluster, uint64_t *seed, int *members)
{
    int n = 0, keep = 1 + (int)(draw(seed) % (uint32_t)cluster->n_members);
    int first = (int)(draw(seed) % (uint32_t)(cluster->n_members - keep + 1));
    int fresh = (int)(draw(seed) % (uint32_t)(MOST - keep + 1));

    for (int i = 0; i < keep; i++)
        members[n++] = cluster->members[first + i];
    for (int i = 0; i < fresh && n < MOST && cluster->n < CLUSTER_WORKERS; i++)
        members[n++] = cluster_newcomer(cluster);
    return n;
}

static bool has(int worker, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (members[i] == worker)
            return true;
    return false;
}

/* All alive of the present members and `members` go on together; the others have nothing to lose.
 */
static void gather_survivors(struct cluster *cluster, const int *members, int n)
{
    int all[2 * MOST], n_all = 0;

    for (int i = 0; i < cluster->n_members; i++)
        if (!cluster->workers[cluster->members[i]].exited)
            all[n_all++] = cluster->members[i];
    for (int i = 0; i < n; i++)
        if (!cluster->workers[members[i]].exited && !has(members[i], all, n_all))
            all[n_all++] = members[i];
    while (n_all > MOST)
        cluster_leave(cluster, all[--n_all], NULL, 0);
    cluster->n_members = 0;
    cluster->recovers = true;
    cluster_move(cluster, all, n_all, NULL);
    cluster->recovers = false;
}

/* Did a member of the present configuration notice in time, and train on? */
static bool withdrew(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    for (int i = 0; i < n; i++)
        if (has(members[i], cluster->members, cluster->n_members) &&
            !cluster->workers[members[i]].frozen)
            return cluster->workers[members[i]].unready == number;
    return false;
}

static void drop_newcomers(struct cluster *cluster, uint32_t number, const int *members, int n)
{
    for (int i = 0; i < cluster->n_members; i++)
        cluster_abandon(cluster, cluster->members[i], number);
    for (int i = 0; i < n; i++)
        if (!has(members[i], cluster->members, cluster->n_members) &&
            !cluster->workers[members[i]].exited)
            cluster_kill(cluster, members[i]);
}

/* A death just when all are told to flip. */
/* A member may say that it feeds no more when its vote for the flip is on its way already: whether
 * it withdrew shows in what comes next, steps or its freezing. */
static bool shows(struct cluster *cluster, int64_t rows)
{
    if (cluster->n_rows >= rows + 3 || cluster->n_rows > job.steps)
        return true;
    for (int i = 0; i < cluster->n_members; i++)
        if (cluster->workers[cluster->members[i]].frozen)
            return true;
    return false;
}

static bool froze_after_all(struct cluster *cluster)
{
    cluster_until(cluster, shows, cluster->n_rows, "steps or freezing");
    for (int i = 0; i < cluster->n_members; i++)
        if (cluster->workers[cluster->members[i]].frozen)
            return true;
    return false;
}

static void die_in_flip(struct cluster *cluster, uint64_t *seed)
{
    int members[MOST], n = choose_members(cluster, seed, members), victim;
    uint32_t number = ++cluster->number;
    int64_t wait = draw(seed) % 3;

    if (n < 2)
        return;
    victim = members[draw(seed) % (uint32_t)n];
    if (cluster->n_members == 1 && victim == cluster->members[0])
        victim = members[n - 1]; /* a newcomer: somebody must be left who has the state */
    cluster_configure(cluster, number, members, n, NULL);
    cluster_until_ready(cluster, number, members, n);
    for (int i = 0; i < n; i++)
        cluster_go(cluster, members[i], number);
    for (int i = 0; i < cluster->n_members; i++)
        cluster_go(cluster, cluster->members[i], number);
    if (wait < 2 && cluster->n_rows < 1000)
        cluster_until_step(cluster, cluster->n_rows - 1 + wait);
    cluster_kill(cluster, victim);
    cluster_until_frozen(cluster, number, members, n, true);
    if (!has(victim, cluster->members, cluster->n_members) &&
        withdrew(cluster, number, members, n) && !froze_after_all(cluster))
        drop_newcomers(cluster, number, members, n); /* it died too early to cost anything */
    else
        gather_survivors(cluster, members, n);
}

/* A newcomer dies, or the coordinator thinks again, before anyone is told to go. */
static void give_up_preparing(struct cluster *cluster, uint64_t *seed)
{
    int members[MOST], n = choose_members(cluster, seed, members);
    uint32_t number = ++cluster->number;

    cluster_configure(cluster, number, members, n, NULL);
    if (draw(seed) % 2)
        cluster_until_ready(cluster, number, members, n);
    for (int i = 0; i < n; i++)
        cluster_abandon(cluster, members[i], number);
    drop_newcomers(cluster, number, members, n);
}

static void storm(uint64_t seed)
{
    uint64_t drawn = seed * 77 + 1;
    struct run run;

    open_run(&run, &job);
    cluster_start(&run.cluster, 1 + (int)(draw(&drawn) % 3), run.weights);
    for (int event = 0; run.cluster.n_rows < job.steps / 3 && run.cluster.n < 50; event++) {
        struct cluster *cluster = &run.cluster;
        int members[MOST], n;

        cluster_spare(cluster, 2);
        if (cluster->n_rows >= job.steps / 3)
            break; /* it did not wait for them */
        cluster_until_step(cluster, cluster->n_rows + draw(&drawn) % 8);
        switch (draw(&drawn) % 6) {
        case 0:
            if (cluster->n_members > 1) {
                cluster_kill(cluster,
                             cluster->members[draw(&drawn) % (uint32_t)cluster->n_members]);
                cluster_recover(cluster);
            }
            break;
        case 1:
            die_in_flip(cluster, &drawn);
            break;
        case 2:
            give_up_preparing(cluster, &drawn);
            break;
        case 3:
            n = cluster->members[draw(&drawn) % (uint32_t)cluster->n_members];
            cluster_disconnect(cluster, n);
            cluster_connect(cluster, n, cluster->workers[n].rows);
            break;
        default:
            n = choose_members(cluster, &drawn, members);
            cluster_move(cluster, members, n, NULL);
        }
    }
    compare_with_reference(&run);
    close_run(&run);
}

static void test_storms(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= storms; seed++) {
        print_message("storm %llu\n", (unsigned long long)seed);
        storm(seed);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),          cmocka_unit_test(test_any_count),
        cmocka_unit_test(test_resized),         cmocka_unit_test(test_moved),
        cmocka_unit_test(test_killed),          cmocka_unit_test(test_kept),
        cmocka_unit_test(test_parked),          cmocka_unit_test(test_grown),
        cmocka_unit_test(test_go_withheld),     cmocka_unit_test(test_feed_abandoned),
        cmocka_unit_test(test_newcomer_killed), cmocka_unit_test(test_source_killed),
        cmocka_unit_test(test_newcomer_silent), cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_saves),           cmocka_unit_test(test_agent_gone),
        cmocka_unit_test(test_old_orders),      cmocka_unit_test(test_terminated),
        cmocka_unit_test(test_foreseen),        cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_unready),         cmocka_unit_test(test_bad_start),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_no_targets),
        cmocka_unit_test(test_variants),        cmocka_unit_test(test_storms),
    };

    if (argc < 2) {
        fprintf(stderr, "usage: %s RUBATO-WORKER [STORMS [FILTER]]\n", argv[0]);
        return 2;
    }
    program = argv[1];
    if (argc > 2)
        storms = strtoull(argv[2], NULL, 10); /* for a longer look by hand */
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    make_reference();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
