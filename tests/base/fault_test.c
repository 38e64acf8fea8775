/* SPDX-License-Identifier: Apache-2.0 */
/* Fault points: what the environment may say, and that a process dies where it is told to. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A process that passes "worker.voted" three times, the last two as rank 1.  0: it lived through
 * them, -1: it refused the plan, 100 + SIGNAL: it was stopped, else the signal or exit code that
 * ended it. */
static int life_of(const char *plan, const char *once)
{
    int status = 0;
    pid_t pid = fork();

    if (!pid) {
        if (rb_fault_arm(plan, once, NULL))
            _exit(255);
        for (int i = 0; i < 3; i++) {
            rb_fault_rank(i > 0);
            rb_fault("worker.vote");
            rb_fault("worker.voted");
            if (i < 2 && rb_fault_passages("worker.voted") > i + 1)
                _exit(254);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return 100 + WSTOPSIG(status);
    }
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

static void test_plans(void **state)
{
    (void)state;
    assert_int_equal(life_of(NULL, NULL), 0);
    assert_int_equal(life_of("", NULL), 0);
    assert_int_equal(life_of("worker.voted", NULL), SIGKILL);
    assert_int_equal(life_of("worker.voted:at=3:do=stop", NULL), 100 + SIGSTOP);
    assert_int_equal(life_of("worker.voted:at=4", NULL), 0);
    assert_int_equal(life_of("worker.voted:rank=1:at=2:do=exit", NULL), 86);
    assert_int_equal(life_of("worker.voted:rank=1:at=3", NULL), 0);
    assert_int_equal(life_of("worker.voted:rank=2", NULL), 0);
    assert_int_equal(life_of("worker.row,worker.voted:at=2:do=exit", NULL), 86);
}

/* Sleeps from the second passage on. */
static void test_sleeps(void **state)
{
    uint64_t before = rb_clock_ns();

    (void)state;
    assert_int_equal(life_of("worker.voted:at=2:do=20ms", NULL), 0);
    assert_true(rb_clock_ns() - before >= 40000000);
    assert_int_equal(life_of("worker.voted:do=1ms,worker.voted:at=3:do=exit", NULL), 86);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {"worker.nowhere",
                                      "worker.voted:at=",
                                      "worker.voted:at=1x",
                                      "worker.voted:rank=-1",
                                      "worker.voted:rank=4294967297",
                                      "worker.voted:at=99999999999999999999",
                                      "worker.voted:do=it",
                                      "worker.voted,worker.nowhere",
                                      "worker.voted:do=5s",
                                      "worker.voted:do=0ms",
                                      "worker.voted:do=5msec"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(bad); i++)
        if (life_of(bad[i], NULL) != -1)
            fail_msg("'%s' was taken", bad[i]);
}

static void test_once(void **state)
{
    char folder[] = "/tmp/rubato-fault-XXXXXX", once[64], plan[64], from[80];
    const char text[] = "worker.row,worker.voted\n";

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(once, sizeof once, "%s/once", folder);
    assert_int_equal(life_of("worker.voted", once), SIGKILL);
    assert_int_equal(life_of("worker.voted", once), 0); /* the process that takes its place */
    assert_int_equal(life_of("worker.row,worker.voted", once), SIGKILL); /* another fault */

    snprintf(plan, sizeof plan, "%s/plan", folder);
    snprintf(from, sizeof from, "@%s", plan);
    assert_int_equal(life_of(from, NULL), 0); /* the plan file is missing: nothing is armed */
    assert_int_equal(rb_file_write(plan, text, strlen(text), NULL), 0);
    assert_int_equal(life_of(from, NULL), SIGKILL);
    rb_file_remove(folder, NULL);
}

static void test_table(void **state)
{
    const char *name, *meaning, *before[64];
    int n = 0;

    (void)state;
    for (; rb_fault_describe(n, &name, &meaning); n++) {
        assert_true(n < 64 && *meaning);
        for (int i = 0; i < n; i++)
            assert_string_not_equal(name, before[i]);
        before[n] = name;
    }
    assert_true(n > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans), cmocka_unit_test(test_sleeps), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_once),  cmocka_unit_test(test_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
