/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting: for what, for how long, through lost connections, and until a signal. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "tests/ctl/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_wait(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "status", .body = cli_running},
        {.method = "status", .how = FAKE_HANG_UP},
        {.method = "status", .error = RB_EAGAIN, .why = "no leader yet"},
        {.method = "status", .body = "{\"phase\":\"Failed\",\"step\":8,\"reason\":\"a NaN\"}"},
        {.method = "status", .body = cli_succeeded},
        {.method = "status", .body = cli_running},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    cli_expect(&fake, 1, "gpt: Failed at step 8", "trying again",
               WORDS("wait", "gpt", "--for", "done"));
    cli_expect(&fake, 1, "gpt: Succeeded at step 10", "gpt ended without being paused",
               WORDS("wait", "gpt", "--for", "paused"));
    cli_expect(&fake, 4, "", "gpt: it has 10 steps, and none of number 30",
               WORDS("wait", "gpt", "--for", "step=30"));
    cli_expect(&fake, 4, "", "gpt: it trains on 1 to 4 devices, never on 5",
               WORDS("wait", "gpt", "--for", "devices=5"));
    cli_expect(&fake, 0, "", "", WORDS("wait", "gpt", "--for", "step=7"));
    cli_expect(&fake, 0, "", "", WORDS("wait", "gpt", "--for", "devices=1"));
    cli_expect(&fake, 124, "", "timed out; gpt goes on",
               WORDS("wait", "gpt", "--for", "step=8", "--timeout", "250ms"));
    fake_stop(&fake);
}

/* A caller that waits follows the job, and not its name, which another job may get. */
static void test_wait_for_deleted(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "submit", .body = "{\"name\":\"gpt\",\"id\":\"5f21\",\"steps\":10}"},
        {.method = "status", .body = "{\"id\":\"5f21\",\"phase\":\"Running\",\"step\":8}"},
        {.method = "status", .error = RB_ENOTFOUND, .why = "there is no job '5f21'"},
        {.method = "status", .body = "{\"id\":\"77aa\",\"phase\":\"Running\",\"step\":8}"},
        {.method = "status", .error = RB_ENOTFOUND, .why = "there is no job '77aa'"},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    cli_put(&fake, "job.yaml", cli_job);
    cli_expect(&fake, 3, "", "job gpt was deleted meanwhile",
               WORDS("submit", "-f", "job.yaml", "--wait"));
    cli_called(&fake, "status leader {\"job\":\"5f21\"}");
    cli_expect(&fake, 3, "", "job gpt was deleted meanwhile",
               WORDS("wait", "gpt", "--for", "done"));
    cli_called(&fake, "status leader {\"job\":\"gpt\"}");
    cli_called(&fake, "status leader {\"job\":\"77aa\"}");
    fake_stop(&fake);
}

static int count_calls(const struct fake *fake, const char *method)
{
    RB_CLEANUP(rb_freep) char *calls = fake_calls(fake);
    int n = 0;

    for (const char *at = calls; (at = strstr(at, method)); at++)
        n++;
    return n;
}

/* Also before any call has waited for the process. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

/* Send this signal once rubatoctl has asked so often. */
static struct outcome interrupt(const struct fake *fake, int with, int times, const char *method,
                                const char *const *words)
{
    const int before = count_calls(fake, method);
    pid_t pid = fake_spawn(fake, words);

    while (count_calls(fake, method) < before + times && !has_ended(pid))
        usleep(1000);
    kill(pid, with);
    return fake_wait(fake, pid);
}

/* Does the file system have O_TMPFILE?  Not every one does. */
static bool has_unnamed_files(const struct fake *fake)
{
    int fd = open(fake->folder, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static void test_interrupt(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "status", .body = cli_running},
        {.method = "export", .data = "abcdef", .how = FAKE_SILENCE},
        {0},
    };
    RB_CLEANUP(rb_freep) char *names = NULL;
    struct outcome outcome;
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    outcome = interrupt(&fake, SIGINT, 2, "status ", WORDS("wait", "gpt", "--for", "done"));
    assert_int_equal(outcome.code, 130);
    cli_has(outcome.err, "gpt goes on");
    outcome_done(&outcome);
    outcome =
        interrupt(&fake, SIGINT, 1, "export ", WORDS("export", "gpt", "--out", "m.safetensors"));
    assert_int_equal(outcome.code, 130);
    outcome_done(&outcome);
    if (has_unnamed_files(&fake)) {
        outcome = interrupt(&fake, SIGKILL, 1, "export ",
                            WORDS("export", "gpt", "--out", "m.safetensors"));
        assert_int_equal(outcome.code, 128 + SIGKILL);
        outcome_done(&outcome);
    }
    names = rb_format("ls %s | grep -q safetensors", fake.folder);
    assert_int_not_equal(system(names), 0);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_wait_for_deleted),
        cmocka_unit_test(test_interrupt),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
