/* SPDX-License-Identifier: Apache-2.0 */
/* The heart of it: whatever happens to the workers, the bits of the result are the same. */
#include "tests/worker/run.h"

#include "base/buffer.h"
#include "base/file.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_learns(void **state)
{
    const Rb__Row *first = run_reference_row(1), *last = run_reference_row(run_job.steps);

    (void)state;
    assert_true(last->loss < 0.6 * first->loss);
    assert_int_equal(first->redone, 1); /* without history the first attempt is voted down */
    assert_true(last->has_eval_loss && last->has_eval_accuracy);
    assert_true(last->eval_accuracy > 0.5);
    assert_false(run_reference_row(7)->has_eval_loss);
}

static void test_any_count(void **state)
{
    static const int counts[] = {2, 3, 5};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(counts); i++) {
        struct run run;

        run_open(&run, &run_job);
        cluster_start(&run.cluster, counts[i], run.weights);
        run_compare(&run);
        run_close(&run);
    }
}

static void test_resized(void **state)
{
    static const int counts[] = {3, 2, 4, 1, 2, 3};
    struct run run;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_spare(&run.cluster, 7);
    for (size_t i = 0; i < RB_COUNT(counts); i++) {
        cluster_until_step(&run.cluster, 20 + 40 * (int64_t)i);
        cluster_resize(&run.cluster, counts[i]);
        assert_int_equal(run.cluster.n_members, counts[i]);
    }
    run_end(&run, &run_endless);
    run_close(&run);
}

static void test_moved(void **state)
{
    int fresh[2], both[4];
    struct run run;

    (void)state;
    run_open(&run, &run_endless);
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
    run_end(&run, &run_endless);
    run_close(&run);
}

static void test_killed(void **state)
{
    struct run run;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 4, run.weights);
    for (int64_t i = 0; i < 3; i++) {
        int victim = run.cluster.members[i == 1 ? 0 : run.cluster.n_members - 1];

        cluster_until_step(&run.cluster, 30 + 60 * i);
        cluster_kill(&run.cluster, victim);
        cluster_recover(&run.cluster);
    }
    assert_int_equal(run.cluster.n_members, 1);
    run_end(&run, &run_endless);
    run_close(&run);
}

/* The second of these two stands still: the first is told to recover alone in `number`, does so,
 * and the run ends. */
static void end_alone(struct run *run, uint32_t number, const int *two)
{
    run->cluster.recovers = true;
    cluster_configure(&run->cluster, number, two, 1, NULL);
    cluster_until_ready(&run->cluster, number, two, 1);
    cluster_go(&run->cluster, two[0], number);
    cluster_until_flipped(&run->cluster, number, two, 1);
    cluster_kill(&run->cluster, two[1]);
    run->cluster.recovers = false;
    run->cluster.number = number;
    run->cluster.n_members = 1;
    run_end(run, &run_endless);
    run_close(run);
}

/* After a death two of three open what is left.  One of them stands still, no link ends, and nobody
 * tells the other that the opening was given up: told to go on alone, it does, and does not
 * wait. */
static void test_left_in_an_opening(void **state)
{
    struct run run;
    int left[2], gone;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 3, run.weights);
    memcpy(left, run.cluster.members, sizeof left);
    gone = run.cluster.members[2];
    cluster_until_step(&run.cluster, 30);
    cluster_kill(&run.cluster, gone);
    cluster_until_stopped(&run.cluster);
    run.cluster.recovers = true;
    cluster_configure(&run.cluster, 2, left, 2, NULL);
    cluster_until_ready(&run.cluster, 2, left, 2);
    kill(run.cluster.workers[left[1]].pid, SIGSTOP);
    cluster_go(&run.cluster, left[0], 2);
    end_alone(&run, 4, left);
}

/* One of two stands still, and the step waits for it: the other is told to go on alone and breaks
 * the step off. */
static void test_left_in_a_step(void **state)
{
    struct run run;
    int members[2];

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    memcpy(members, run.cluster.members, sizeof members);
    cluster_until_step(&run.cluster, 30);
    kill(run.cluster.workers[members[1]].pid, SIGSTOP);
    end_alone(&run, 3, members);
}

/* The last step of configuration 1, once there is a step of the next configuration; 0: not yet. */
static int64_t last_step(const struct cluster *cluster)
{
    int64_t step = 0;

    for (int64_t s = 1; s < cluster->n_rows; s++) {
        if (cluster->rows[s] && cluster->rows[s]->configuration > 1)
            return step;
        step = s;
    }
    return 0;
}

static bool has_left(struct cluster *cluster, int64_t worker)
{
    int64_t last = last_step(cluster);

    return last && cluster->workers[worker].rows == last;
}

/* The member that goes on stands still before its flip is known anywhere: the member that has left
 * freezes when it is told to, and goes on with what it has. */
static void test_left_behind(void **state)
{
    struct run run;
    int members[2];
    Rb__ToWorker message = RB__TO_WORKER__INIT;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    memcpy(members, run.cluster.members, sizeof members);
    cluster_until_step(&run.cluster, 30);
    cluster_configure(&run.cluster, 2, &members[1], 1, NULL);
    cluster_until_ready(&run.cluster, 2, &members[1], 1);
    cluster_go(&run.cluster, members[0], 2);
    cluster_go(&run.cluster, members[1], 2);
    cluster_until(&run.cluster, has_left, members[0], "left");
    kill(run.cluster.workers[members[1]].pid, SIGSTOP);
    message.has_freeze = 1;
    message.freeze = run.cluster.workers[members[0]].rows;
    cluster_send(&run.cluster, members[0], &message);
    cluster_until_frozen(&run.cluster, 1, members, 1, false);
    end_alone(&run, 3, members);
}

/* ---- Stopping and starting again -------------------------------------------------------------*/

/* Saved on leaving, in the middle of a step; started again with another number of workers. */
static void test_parked(void **state)
{
    struct run run;
    char folder[160], checkpoint[256];
    int first;

    (void)state;
    run_open(&run, &run_endless);
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
    run_end(&run, &run_endless);
    run_close(&run);
}

/* The state cannot be saved where it is to be: the worker tries again until it can, and answers
 * other requests meanwhile. */
static void test_parked_in_vain(void **state)
{
    Rb__Leave leave = RB__LEAVE__INIT;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    const struct cluster_worker *worker;
    struct run run;
    char folder[160], export[160];
    int first, saved;

    (void)state;
    run_open(&run, &run_endless);
    snprintf(folder, sizeof folder, "%s/park", run.cluster.folder);
    snprintf(export, sizeof export, "%s/export", run.cluster.folder);
    assert_int_equal(rb_file_write(folder, "", 0, NULL), 0);
    cluster_start(&run.cluster, 1, run.weights);
    cluster_until_step(&run.cluster, 10);
    first = run.cluster.members[0];
    worker = &run.cluster.workers[first];
    leave.folder = folder;
    message.leave = &leave;
    cluster_send(&run.cluster, first, &message);
    saved = cluster_until_saved(&run.cluster, first, 0);
    assert_non_null(strstr(worker->saved[saved].error, "a file is in its place"));
    saved =
        cluster_until_saved(&run.cluster, first, cluster_save(&run.cluster, first, export, true));
    assert_string_equal(worker->saved[saved].error, "");
    assert_int_equal(unlink(folder), 0);
    cluster_until_exit(&run.cluster, first);
    assert_int_equal(worker->code, 0);
    assert_string_equal(worker->saved[worker->n_saved - 1].error, "");
    run_close(&run);
}

static bool has_spoken_of_saving(struct cluster *cluster, int64_t times)
{
    return cluster->workers[cluster->members[0]].n_saved > times;
}

static void tell_to_stay(struct cluster *cluster, int worker)
{
    Rb__ToWorker message = RB__TO_WORKER__INIT;

    message.has_stay = message.stay = 1;
    cluster_send(cluster, worker, &message);
}

/* A worker that cannot save is told to stay, and trains again with the other, which it had stopped;
 * it has lost nothing, and hears orders as always.  The order that comes first, to stay or where to
 * go, is obeyed at once.  Then the worker is told to save and leave as if for the first time. */
static void test_parked_and_taken_back(void **state)
{
    Rb__Leave leave = RB__LEAVE__INIT;
    Rb__ToWorker message = RB__TO_WORKER__INIT;
    const struct cluster_worker *worker;
    struct run run;
    char folder[160], checkpoint[256];
    int first, saved;

    (void)state;
    run_open(&run, &run_endless);
    snprintf(folder, sizeof folder, "%s/park", run.cluster.folder);
    cluster_start(&run.cluster, 2, run.weights);
    first = run.cluster.members[0];
    worker = &run.cluster.workers[first];
    leave.folder = folder;
    message.leave = &leave;
    for (int64_t i = 0; i < 2; i++) {
        cluster_until_step(&run.cluster, 30 + 60 * i);
        assert_int_equal(rb_file_write(folder, "", 0, NULL), 0);
        saved = worker->n_saved;
        cluster_send(&run.cluster, first, &message);
        cluster_until(&run.cluster, has_spoken_of_saving, saved, "why it cannot save");
        assert_non_null(strstr(worker->saved[saved].error, "a file is in its place"));
        cluster_disconnect(&run.cluster, first);
        cluster_connect(&run.cluster, first, 0);
        assert_true(worker->hello->hello->saving);
        tell_to_stay(&run.cluster, first);
        if (i) { /* or not: a repeated order is answered with why it has not been done */
            saved = worker->n_saved;
            cluster_send(&run.cluster, first, &message);
            cluster_until(&run.cluster, has_spoken_of_saving, saved, "why it cannot save");
            tell_to_stay(&run.cluster, first);
        }
        cluster_recover(&run.cluster);
        assert_int_equal(unlink(folder), 0);
    }
    cluster_until_step(&run.cluster, 120);
    cluster_leave(&run.cluster, first, folder, 0);
    saved = worker->n_saved - 1;
    assert_string_equal(worker->saved[saved].error, "");
    snprintf(checkpoint, sizeof checkpoint, "%s", worker->saved[saved].folder);
    cluster_leave(&run.cluster, run.cluster.members[1], NULL, 0);
    cluster_start(&run.cluster, 3, checkpoint);
    run_end(&run, &run_endless);
    run_close(&run);
}

/* All workers die at once; the job goes on from the newest periodic checkpoint. */
static void test_checkpoints(void **state)
{
    struct run run;
    char folder[160], latest[200], path[256];
    struct rb_buffer name = {0};

    (void)state;
    run_open(&run, &run_job);
    snprintf(folder, sizeof folder, "%s/checkpoints", run.cluster.folder);
    run.cluster.checkpoint_path = folder;
    run.cluster.checkpoint_every = 25;
    run.cluster.checkpoint_keep = 2;
    cluster_start(&run.cluster, 3, run.weights);
    cluster_until_step(&run.cluster, 80);
    for (int i = 0; i < 3; i++)
        cluster_kill(&run.cluster, run.cluster.members[i]);
    snprintf(latest, sizeof latest, "%s/latest", folder);
    assert_int_equal(rb_file_read(latest, 64, &name, NULL), 0);
    name.data[strcspn(name.data, "\n")] = '\0';
    snprintf(path, sizeof path, "%s/%s", folder, name.data);
    assert_true(strcmp(name.data, "step-00000050") >= 0);
    cluster_start(&run.cluster, 2, path);
    rb_buffer_done(&name);
    run_compare(&run);
    snprintf(path, sizeof path, "%s/step-%08d", folder, (int)run_job.steps);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/step-%08d", folder, (int)run_job.steps - 25);
    assert_int_equal(access(path, F_OK), 0);
    snprintf(path, sizeof path, "%s/step-%08d", folder, (int)run_job.steps - 50);
    assert_int_equal(access(path, F_OK), -1);
    run_close(&run);
}

/* Saves and exports while the job trains; any rank writes the same. */
static void test_saves(void **state)
{
    struct run run;
    uint64_t requests[4];
    char folder[4][160], path[4][200];
    int64_t steps[4];

    (void)state;
    run_open(&run, &run_endless);
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
        assert_true(steps[i] >= 19);
        snprintf(path[i], sizeof path[i], "%s", by->saved[at].folder);
    }
    assert_string_equal(path[2], folder[2]); /* an export lies in the folder itself */
    run_end(&run, &run_endless);
    /* both checkpoints lead to the same state as one device */
    for (int i = 0; i < 2; i++) {
        cluster_start(&run.cluster, 1, path[i]);
        cluster_until_step(&run.cluster, run.cluster.n_rows + 20);
        run_end(&run, &run_endless);
    }
    run_close(&run);
}

/* ---- Agents ---------------------------------------------------------------------------------*/

/* Training goes on without an agent; the next agent is told everything that happened. */
static void test_agent_gone(void **state)
{
    struct run run;
    int a, b;
    int64_t known;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    a = run.cluster.members[0];
    b = run.cluster.members[1];
    cluster_until_step(&run.cluster, 20);
    cluster_disconnect(&run.cluster, a);
    known = run.cluster.workers[a].rows;
    cluster_until_step(&run.cluster, known + 60); /* b still reports */
    cluster_disconnect(&run.cluster, b);
    cluster_connect(&run.cluster, a, known);
    assert_int_equal(run.cluster.workers[a].hello->hello->active, 1);
    assert_true(run.cluster.workers[a].hello->hello->level >= known + 59);
    cluster_connect(&run.cluster, b, 5); /* an agent asks for rows again: sent again */
    cluster_connect(&run.cluster, b, run.cluster.workers[a].rows); /* replaces the other */
    assert_int_equal(run.cluster.workers[b].hellos, 3);
    run_end_whole(&run, &run_endless);
}

/* An order of an older leader, or the same order once more, changes nothing. */
static void test_old_orders(void **state)
{
    struct run run;
    int a;

    (void)state;
    run_open(&run, &run_endless);
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
    run_end(&run, &run_endless);
    run_close(&run);
}

/* SIGTERM ends a worker in order; the others freeze and go on. */
static void test_terminated(void **state)
{
    struct run run;

    (void)state;
    run_open(&run, &run_endless);
    cluster_start(&run.cluster, 2, run.weights);
    cluster_until_step(&run.cluster, 40);
    cluster_terminate(&run.cluster, run.cluster.members[0]);
    cluster_recover(&run.cluster);
    run_end(&run, &run_endless);
    run_close(&run);
}

/* ---- Steps that do not count ----------------------------------------------------------------*/

static void test_not_finite(void **state)
{
    struct tiny_options options = run_job;
    struct run run;
    int members[2];

    (void)state;
    options.bad_feature = (double)INFINITY;
    run_open(&run, &options);
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
    run_close(&run);
}

static void test_no_targets(void **state)
{
    struct tiny_options options = run_job;
    char digest[2][33];

    (void)state;
    options.no_targets = true;
    options.eval_samples = 0;
    options.steps = 30;
    for (int i = 0; i < 2; i++) {
        struct run run;

        run_open(&run, &options);
        cluster_start(&run.cluster, 1 + 2 * i, run.weights);
        cluster_finish(&run.cluster, digest[i]);
        assert_int_equal(run.cluster.n_rows, 31);
        assert_true(run.cluster.rows[30]->skipped && run.cluster.rows[30]->loss == 0);
        run_close(&run);
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
        variants[i] = run_job;
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

            run_open(&run, &variants[i]);
            cluster_start(&run.cluster, 1 + 3 * k, run.weights);
            cluster_finish(&run.cluster, digest[k]);
            run_close(&run);
        }
        assert_string_equal(digest[0], digest[1]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learns),
        cmocka_unit_test(test_any_count),
        cmocka_unit_test(test_resized),
        cmocka_unit_test(test_moved),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_left_in_an_opening),
        cmocka_unit_test(test_left_in_a_step),
        cmocka_unit_test(test_left_behind),
        cmocka_unit_test(test_parked),
        cmocka_unit_test(test_parked_in_vain),
        cmocka_unit_test(test_parked_and_taken_back),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_saves),
        cmocka_unit_test(test_agent_gone),
        cmocka_unit_test(test_old_orders),
        cmocka_unit_test(test_terminated),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_no_targets),
        cmocka_unit_test(test_variants),
    };

    if (!run_begin(argc, argv))
        return 2;
    run_refer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
