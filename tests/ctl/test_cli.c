/* SPDX-License-Identifier: Apache-2.0 */
/* The built rubatoctl against a rubatod of a few lines: words that it does not take, exit codes,
 * and the calls and output of verbs that only look. */
#include "base/error.h"
#include "tests/ctl/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void test_usage(void **state)
{
    static const struct fake_reply none[] = {{0}};
    struct fake fake;

    (void)state;
    fake_start(&fake, none);
    cli_expect(&fake, 2, "", "help", (const char *const[]){NULL});
    cli_expect(&fake, 2, "", "no verb 'frobnicate'", WORDS("frobnicate"));
    cli_expect(&fake, 2, "", "node: say which; see: rubatoctl help node\n", WORDS("node"));
    cli_expect(&fake, 2, "",
               "no verb 'model chek', did you mean 'model check'; see: rubatoctl help",
               WORDS("model", "chek", "m.onnx"));
    cli_expect(&fake, 2, "", "no verb 'sumbit', did you mean 'submit'; see",
               WORDS("help", "sumbit"));
    cli_expect(&fake, 2, "", "no verb 'modle', did you mean 'model'; see", WORDS("modle", "new"));
    cli_expect(&fake, 2, "", "'-f' is there twice",
               WORDS("submit", "-f", "a.yaml", "-f", "b.yaml"));
    cli_expect(&fake, 2, "", "unknown option '--wait'", WORDS("node", "cordon", "a", "--wait"));
    cli_expect(&fake, 2, "", "goes with --wait", WORDS("node", "drain", "a", "--timeout", "5"));
    cli_expect(&fake, 2, "", "rows are csv or json", WORDS("metrics", "gpt", "-o", "table"));
    cli_expect(&fake, 2, "", "-o json: it prints lines", WORDS("logs", "gpt", "-o", "json"));
    cli_expect(&fake, 2, "", "'\xff' is not UTF-8; see", WORDS("status", "\xff"));
    cli_expect(&fake, 2, "", "expected: rubatoctl version; see", WORDS("version", "x"));
    cli_expect(&fake, 0, "model check", "", WORDS("model", "-h"));
    cli_expect(&fake, 0, "node drain", "", WORDS("node", "--help", "drain"));
    cli_expect(&fake, 2, "", "unknown option '-1'", WORDS("grow", "gpt", "-1"));
    cli_expect(&fake, 2, "", "'x' is no count", WORDS("grow", "gpt", "x"));
    cli_expect(&fake, 2, "", "expected: rubatoctl grow", WORDS("grow", "gpt"));
    cli_expect(&fake, 2, "", "NODE:INDEX", WORDS("grow", "gpt", "1", "--devices", "a"));
    cli_expect(&fake, 2, "", "--want", WORDS("resize", "gpt"));
    cli_expect(&fake, 2, "", "goes with --wait", WORDS("grow", "gpt", "1", "--timeout", "5"));
    cli_expect(&fake, 2, "", "--for", WORDS("wait", "gpt"));
    cli_expect(&fake, 2, "", "step=N", WORDS("wait", "gpt", "--for", "lunch"));
    cli_expect(&fake, 2, "", "no duration",
               WORDS("wait", "gpt", "--for", "done", "--timeout", "soon"));
    cli_expect(&fake, 2, "", "no endpoint", WORDS("--endpoint", "nowhere", "get", "jobs"));
    cli_expect(&fake, 2, "", "table, json or yaml", WORDS("get", "jobs", "-o", "xml"));
    cli_expect(&fake, 2, "", "-o csv: expected table, json or yaml",
               WORDS("get", "jobs", "-o", "csv"));
    cli_expect(&fake, 2, "", "there are no 'tables'", WORDS("get", "tables"));
    cli_expect(&fake, 2, "", "get nodes takes no job", WORDS("get", "nodes", "gpt"));
    cli_expect(&fake, 2, "", "-f says", WORDS("submit"));
    cli_expect(&fake, 2, "", "-f says", WORDS("plan", "--devices", "2"));
    cli_expect(&fake, 2, "", "'x' is no count",
               WORDS("plan", "-f", "job.yaml", "--devices", "2,x"));
    cli_expect(&fake, 2, "", "is no number", WORDS("plan", "-f", "job.yaml", "--devices", ","));
    cli_expect(&fake, 2, "", "--out says", WORDS("export", "gpt"));
    cli_expect(&fake, 2, "", "--input says", WORDS("model", "run", "x.onnx"));
    cli_expect(&fake, 0, "submit -f FILE", "", WORDS("help"));
    cli_expect(&fake, 0, "node drain", "", WORDS("help", "node"));
    cli_expect(&fake, 0, "--want N", "", WORDS("resize", "--help"));
    cli_expect(&fake, 2, "", "no verb", WORDS("help", "nothing"));
    cli_expect(&fake, 0, "rubatoctl ", "", WORDS("--version"));
    fake_stop(&fake);
}

static void test_errors(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "status", .error = RB_ENOTFOUND, .why = "there is no job 'x'"},
        {.method = "pause", .error = RB_EREFUSED, .why = "it is over"},
        {.method = "resume", .error = RB_ETIMEOUT, .why = "no leader"},
        {.method = "cancel", .error = RB_EIO, .why = "broken"},
        {.method = "describe", .how = FAKE_HANG_UP},
        {.method = "get", .how = FAKE_GARBAGE},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    cli_expect(&fake, 3, "", "rubatoctl: there is no job 'x'\n", WORDS("status", "x"));
    cli_expect(&fake, 4, "", "it is over", WORDS("pause", "x"));
    cli_expect(&fake, 5, "", "no leader: whether it was done is not known", WORDS("resume", "x"));
    cli_expect(&fake, 1, "", "broken", WORDS("cancel", "x"));
    cli_expect(&fake, 5, "", "before it had answered", WORDS("describe", "x"));
    cli_expect(&fake, 5, "", "not Rubato's protocol", WORDS("get", "jobs"));
    cli_expect(&fake, 5, "", "unix:/nowhere/sock",
               WORDS("--endpoint", "unix:/nowhere/sock", "get", "jobs"));
    cli_expect(&fake, 5, "", "cannot reach rubatod at tcp:127.0.0.1:1",
               WORDS("--endpoint", "tcp:127.0.0.1:1", "get", "jobs"));
    cli_expect(&fake, 0, "rubatoctl ", "cannot reach",
               WORDS("version", "--endpoint", "unix:/nowhere/sock"));
    cli_called(&fake, "status leader {\"job\":\"x\"}");
    fake_stop(&fake);
}

static void test_reading(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "status", .body = cli_running},
        {.method = "describe", .body = "{\"job\":{\"name\":\"gpt\",\"steps\":10}}"},
        {.method = "get",
         .body = "{\"items\":[{\"name\":\"gpt\",\"phase\":\"Running\",\"step\":7,\"steps\":10,"
                 "\"loss\":\"nan\",\"devices\":[1,2],\"want\":2,\"throughput\":1234.5},"
                 "{\"name\":\"new\",\"phase\":\"Pending\",\"step\":0,\"steps\":10,"
                 "\"loss\":null,\"devices\":0,\"want\":2}]}"},
        {.method = "get", .body = "{\"items\":[]}"},
        {.method = "events",
         .body = "{\"items\":[{\"key\":\"k\",\"time\":1767323045678,\"job\":\"gpt\","
                 "\"kind\":\"grown\",\"text\":\"1 -> 3\"}]}"},
        {.method = "version", .body = "{\"version\":\"0.1.0\",\"node\":\"a\",\"leader\":\"b\"}"},
        {0},
    };
    struct fake fake;
    json_t *json, *same = json_loads(cli_running, 0, NULL);

    (void)state;
    fake_start(&fake, replies);
    cli_expect(&fake, 0, "data parallel x1", "", WORDS("status", "gpt"));
    cli_expect(&fake, 0, "a:0 cpu, pid 41", "", WORDS("status", "gpt"));
    json = cli_run_json(&fake, WORDS("status", "gpt", "-o", "json"));
    assert_true(json_equal(json, same));
    cli_expect(&fake, 0, "plan:\n  summary: data parallel x1\n", "",
               WORDS("-o", "yaml", "status", "gpt"));
    cli_expect(&fake, 0, "job:\n  name: gpt\n", "", WORDS("describe", "gpt"));
    cli_expect(&fake, 0,
               "NAME  PHASE    STEP  LOSS  DEVICES  WANT  AGE\n"
               "gpt   Running  7/10   nan        2     2    -\n"
               "new   Pending  0/10     -        0     2    -\n",
               "", WORDS("get", "jobs"));
    cli_expect(&fake, 0, "", "no nodes", WORDS("get", "nodes"));
    cli_expect(&fake, 0, "2026-01-02 03:04:05  gpt  -     grown  1 -> 3\n", "",
               WORDS("events", "gpt"));
    cli_expect(&fake, 0, "rubatod 0.1.0 on a, leader b", "", WORDS("version"));
    cli_called(&fake, "get leader {\"kind\":\"jobs\"}");
    cli_called(&fake, "events leader {\"job\":\"gpt\"}");
    json_decref(json);
    json_decref(same);
    fake_stop(&fake);
}

/* More callers wait at the socket than it takes at the moment. */
static void test_crowd(void **state)
{
    enum { MOST = 64 };
    static const struct fake_reply replies[] = {{.method = "get", .body = "{\"items\":[]}"}, {0}};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct fake fake;
    int crowd[MOST], n = 0, status = 0;

    (void)state;
    fake_start(&fake, replies);
    cli_expect(&fake, 0, "", "", WORDS("get", "jobs"));
    kill(fake.pid, SIGSTOP);
    strcpy(address.sun_path, fake.endpoint + strlen("unix:"));
    for (; !status && n < MOST; n++) {
        crowd[n] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        status = connect(crowd[n], (struct sockaddr *)&address, sizeof address);
    }
    assert_int_equal(status, -1);
    pid_t pid = fake_spawn(&fake, WORDS("get", "jobs"));
    usleep(200000);
    while (n)
        close(crowd[--n]);
    kill(fake.pid, SIGCONT);
    struct outcome outcome = fake_wait(&fake, pid);
    assert_int_equal(outcome.code, 0);
    outcome_done(&outcome);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_reading),
        cmocka_unit_test(test_crowd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
