/* SPDX-License-Identifier: Apache-2.0 */
/* The built rubatoctl against a rubatod of a few lines: exit codes, what is asked, what is printed.
 */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "tests/ctl/fake.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_has(const char *text, const char *part)
{
    if (!text || !strstr(text, part))
        fail_msg("'%s' is not in:\n%s", part, text ? text : "(nothing)");
}

static struct outcome run(const struct fake *fake, int code, const char *const *words)
{
    struct outcome outcome = fake_run(fake, words);

    if (outcome.code != code)
        fail_msg("%s %s: exit %d, not %d\n%s%s", words[0], words[1] ? words[1] : "", outcome.code,
                 code, outcome.out, outcome.err);
    return outcome;
}

/* Exit code, one part of stdout and one of stderr. */
static void expect(const struct fake *fake, int code, const char *out, const char *err,
                   const char *const *words)
{
    struct outcome outcome = run(fake, code, words);

    assert_has(outcome.out, out);
    assert_has(outcome.err, err);
    outcome_done(&outcome);
}

static json_t *run_json(const struct fake *fake, const char *const *words)
{
    struct outcome outcome = run(fake, 0, words);
    json_t *json = json_loads(outcome.out, JSON_REJECT_DUPLICATES, NULL);

    if (!json)
        fail_msg("not JSON: %s", outcome.out);
    outcome_done(&outcome);
    return json;
}

static void assert_called(const struct fake *fake, const char *part)
{
    char *calls = fake_calls(fake);

    assert_has(calls, part);
    free(calls);
}

static void put(const struct fake *fake, const char *name, const char *text)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", fake->folder, name);

    assert_int_equal(rb_file_write(path, text, strlen(text), NULL), 0);
}

static void test_usage(void **state)
{
    static const struct fake_reply none[] = {{0}};
    struct fake fake;

    (void)state;
    fake_start(&fake, none);
    expect(&fake, 2, "", "help", (const char *const[]){NULL});
    expect(&fake, 2, "", "no verb 'frobnicate'", WORDS("frobnicate"));
    expect(&fake, 2, "", "node: say which; see: rubatoctl help node\n", WORDS("node"));
    expect(&fake, 2, "", "no verb 'model chek', did you mean 'model check'; see: rubatoctl help",
           WORDS("model", "chek", "m.onnx"));
    expect(&fake, 2, "", "no verb 'sumbit', did you mean 'submit'; see", WORDS("help", "sumbit"));
    expect(&fake, 2, "", "no verb 'modle', did you mean 'model'; see", WORDS("modle", "new"));
    expect(&fake, 2, "", "'-f' is there twice", WORDS("submit", "-f", "a.yaml", "-f", "b.yaml"));
    expect(&fake, 2, "", "unknown option '--wait'", WORDS("node", "cordon", "a", "--wait"));
    expect(&fake, 2, "", "goes with --wait", WORDS("node", "drain", "a", "--timeout", "5"));
    expect(&fake, 2, "", "rows are csv or json", WORDS("metrics", "gpt", "-o", "table"));
    expect(&fake, 2, "", "-o json: it prints lines", WORDS("logs", "gpt", "-o", "json"));
    expect(&fake, 2, "", "'\xff' is not UTF-8; see", WORDS("status", "\xff"));
    expect(&fake, 2, "", "expected: rubatoctl version; see", WORDS("version", "x"));
    expect(&fake, 0, "model check", "", WORDS("model", "-h"));
    expect(&fake, 0, "node drain", "", WORDS("node", "--help", "drain"));
    expect(&fake, 2, "", "unknown option '-1'", WORDS("grow", "gpt", "-1"));
    expect(&fake, 2, "", "'x' is no count", WORDS("grow", "gpt", "x"));
    expect(&fake, 2, "", "expected: rubatoctl grow", WORDS("grow", "gpt"));
    expect(&fake, 2, "", "NODE:INDEX", WORDS("grow", "gpt", "1", "--devices", "a"));
    expect(&fake, 2, "", "--want", WORDS("resize", "gpt"));
    expect(&fake, 2, "", "goes with --wait", WORDS("grow", "gpt", "1", "--timeout", "5"));
    expect(&fake, 2, "", "--for", WORDS("wait", "gpt"));
    expect(&fake, 2, "", "step=N", WORDS("wait", "gpt", "--for", "lunch"));
    expect(&fake, 2, "", "no duration", WORDS("wait", "gpt", "--for", "done", "--timeout", "soon"));
    expect(&fake, 2, "", "no endpoint", WORDS("--endpoint", "nowhere", "get", "jobs"));
    expect(&fake, 2, "", "table, json or yaml", WORDS("get", "jobs", "-o", "xml"));
    expect(&fake, 2, "", "-o csv: expected table, json or yaml", WORDS("get", "jobs", "-o", "csv"));
    expect(&fake, 2, "", "there are no 'tables'", WORDS("get", "tables"));
    expect(&fake, 2, "", "get nodes takes no job", WORDS("get", "nodes", "gpt"));
    expect(&fake, 2, "", "-f says", WORDS("submit"));
    expect(&fake, 2, "", "-f says", WORDS("plan", "--devices", "2"));
    expect(&fake, 2, "", "'x' is no count", WORDS("plan", "-f", "job.yaml", "--devices", "2,x"));
    expect(&fake, 2, "", "is no number", WORDS("plan", "-f", "job.yaml", "--devices", ","));
    expect(&fake, 2, "", "--out says", WORDS("export", "gpt"));
    expect(&fake, 2, "", "--input says", WORDS("model", "run", "x.onnx"));
    expect(&fake, 0, "submit -f FILE", "", WORDS("help"));
    expect(&fake, 0, "node drain", "", WORDS("help", "node"));
    expect(&fake, 0, "--want N", "", WORDS("resize", "--help"));
    expect(&fake, 2, "", "no verb", WORDS("help", "nothing"));
    expect(&fake, 0, "rubatoctl ", "", WORDS("--version"));
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
    expect(&fake, 3, "", "rubatoctl: there is no job 'x'\n", WORDS("status", "x"));
    expect(&fake, 4, "", "it is over", WORDS("pause", "x"));
    expect(&fake, 5, "", "no leader: whether it was done is not known", WORDS("resume", "x"));
    expect(&fake, 1, "", "broken", WORDS("cancel", "x"));
    expect(&fake, 5, "", "before it had answered", WORDS("describe", "x"));
    expect(&fake, 5, "", "not Rubato's protocol", WORDS("get", "jobs"));
    expect(&fake, 5, "", "unix:/nowhere/sock",
           WORDS("--endpoint", "unix:/nowhere/sock", "get", "jobs"));
    expect(&fake, 5, "", "cannot reach rubatod at tcp:127.0.0.1:1",
           WORDS("--endpoint", "tcp:127.0.0.1:1", "get", "jobs"));
    expect(&fake, 0, "rubatoctl ", "cannot reach",
           WORDS("version", "--endpoint", "unix:/nowhere/sock"));
    assert_called(&fake, "status leader {\"job\":\"x\"}");
    fake_stop(&fake);
}

static const char running[] =
    "{\"name\":\"gpt\",\"phase\":\"Running\",\"step\":7,\"steps\":10,\"loss\":2.5,\"samples\":70,"
    "\"configuration\":3,\"devices\":[{\"node\":\"a\",\"device\":0,\"kind\":\"cpu\",\"pid\":41}],"
    "\"plan\":{\"summary\":\"data parallel "
    "x1\"},\"throughput\":12.5,\"want\":1,\"min\":1,\"max\":4}";
static const char succeeded[] = "{\"name\":\"gpt\",\"phase\":\"Succeeded\",\"step\":10,\"steps\":"
                                "10,\"loss\":2.25,\"devices\":[]}";

static void test_reading(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "status", .body = running},
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
    json_t *json, *same = json_loads(running, 0, NULL);

    (void)state;
    fake_start(&fake, replies);
    expect(&fake, 0, "data parallel x1", "", WORDS("status", "gpt"));
    expect(&fake, 0, "a:0 cpu, pid 41", "", WORDS("status", "gpt"));
    json = run_json(&fake, WORDS("status", "gpt", "-o", "json"));
    assert_true(json_equal(json, same));
    expect(&fake, 0, "plan:\n  summary: data parallel x1\n", "",
           WORDS("-o", "yaml", "status", "gpt"));
    expect(&fake, 0, "job:\n  name: gpt\n", "", WORDS("describe", "gpt"));
    expect(&fake, 0,
           "NAME  PHASE    STEP  LOSS  DEVICES  WANT  AGE\n"
           "gpt   Running  7/10   nan        2     2    -\n"
           "new   Pending  0/10     -        0     2    -\n",
           "", WORDS("get", "jobs"));
    expect(&fake, 0, "", "no nodes", WORDS("get", "nodes"));
    expect(&fake, 0, "2026-01-02 03:04:05  gpt  -     grown  1 -> 3\n", "", WORDS("events", "gpt"));
    expect(&fake, 0, "rubatod 0.1.0 on a, leader b", "", WORDS("version"));
    assert_called(&fake, "get leader {\"kind\":\"jobs\"}");
    assert_called(&fake, "events leader {\"job\":\"gpt\"}");
    json_decref(json);
    json_decref(same);
    fake_stop(&fake);
}

static const char job[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: gpt}\nspec:\n"
                          "  model: {onnx: gpt.onnx}\n  data: {train: {path: c.txt}}\n"
                          "  train: {steps: 10}\n";

static void test_submit(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "submit",
         .body = "{\"name\":\"gpt\",\"id\":\"1\",\"steps\":10,\"summary\":\"3.3 M parameters\","
                 "\"notes\":[\"a mask is trained\"]}"},
        {.method = "status",
         .body = "{\"phase\":\"Pending\",\"step\":0,\"steps\":10,\"devices\":[]}"},
        {.method = "status", .body = running},
        {.method = "status", .body = succeeded},
        {0},
    };
    RB_CLEANUP(rb_freep) char *where = NULL;
    struct fake fake;
    json_t *json;

    (void)state;
    fake_start(&fake, replies);
    put(&fake, "job.yaml", job);
    put(&fake, "bad.yaml", "apiVersion: rubato/v1\nkind: TrainJob\nspec:\n  modell: {}\n");
    expect(&fake, 4, "", "bad.yaml:4:3: unknown key 'modell', did you mean 'model'?",
           WORDS("submit", "-f", "bad.yaml"));
    expect(&fake, 4, "", "--set spec.train.steps=0",
           WORDS("submit", "-f", "job.yaml", "--set", "spec.train.steps=0"));
    expect(&fake, 3, "", "none.yaml", WORDS("submit", "-f", "none.yaml"));
    expect(&fake, 0, "gpt: 3.3 M parameters; 10 steps\n", "status gpt",
           WORDS("submit", "-f", "job.yaml", "--set", "spec.train.seed=5"));
    expect(&fake, 0, "gpt: 3.3 M", "rubatoctl: a mask is trained\n",
           WORDS("submit", "-f", "job.yaml"));
    put(&fake, "in", job);
    expect(&fake, 0, "gpt: 3.3 M", "", WORDS("submit", "-f", "-", "--set", "spec.train.seed=6"));
    where = rb_format("%s/gpt.onnx\"", strrchr(fake.folder, '/'));
    assert_called(&fake, "\"seed\":6");
    assert_called(&fake, where);
    assert_called(&fake, "\"globalBatch\":32");
    assert_called(&fake, "\"seed\":5");
    assert_called(&fake, "/gpt.onnx\"");
    assert_called(&fake, "\"window\":\"1h\"");
    expect(&fake, 0, "gpt: Succeeded at step 10 of 10, loss 2.2500", "Pending | step 0/10",
           WORDS("submit", "-f", "job.yaml", "--wait"));
    json = run_json(&fake, WORDS("submit", "-f", "job.yaml", "--wait", "-o", "json"));
    assert_string_equal(json_string_value(json_object_get(json, "phase")), "Succeeded");
    json_decref(json);
    fake_stop(&fake);
}

static void test_wait(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "status", .body = running},
        {.method = "status", .how = FAKE_HANG_UP},
        {.method = "status", .error = RB_EAGAIN, .why = "no leader yet"},
        {.method = "status", .body = "{\"phase\":\"Failed\",\"step\":8,\"reason\":\"a NaN\"}"},
        {.method = "status", .body = succeeded},
        {.method = "status", .body = running},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    expect(&fake, 1, "gpt: Failed at step 8", "trying again",
           WORDS("wait", "gpt", "--for", "done"));
    expect(&fake, 1, "gpt: Succeeded at step 10", "gpt ended without being paused",
           WORDS("wait", "gpt", "--for", "paused"));
    expect(&fake, 4, "", "gpt: it has 10 steps, and none of number 30",
           WORDS("wait", "gpt", "--for", "step=30"));
    expect(&fake, 4, "", "gpt: it trains on 1 to 4 devices, never on 5",
           WORDS("wait", "gpt", "--for", "devices=5"));
    expect(&fake, 0, "", "", WORDS("wait", "gpt", "--for", "step=7"));
    expect(&fake, 0, "", "", WORDS("wait", "gpt", "--for", "devices=1"));
    expect(&fake, 124, "", "timed out; gpt goes on",
           WORDS("wait", "gpt", "--for", "step=8", "--timeout", "250ms"));
    fake_stop(&fake);
}

/* Whoever waits follows the job, and not its name, which another may get. */
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
    put(&fake, "job.yaml", job);
    expect(&fake, 3, "", "job gpt was deleted meanwhile",
           WORDS("submit", "-f", "job.yaml", "--wait"));
    assert_called(&fake, "status leader {\"job\":\"5f21\"}");
    expect(&fake, 3, "", "job gpt was deleted meanwhile", WORDS("wait", "gpt", "--for", "done"));
    assert_called(&fake, "status leader {\"job\":\"gpt\"}");
    assert_called(&fake, "status leader {\"job\":\"77aa\"}");
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

/* With this signal once rubatoctl has asked so often. */
static struct outcome interrupt(const struct fake *fake, int with, int times, const char *method,
                                const char *const *words)
{
    const int before = count_calls(fake, method);
    pid_t pid = fake_spawn(fake, words);

    while (count_calls(fake, method) < before + times && kill(pid, 0) == 0)
        usleep(1000);
    kill(pid, with);
    return fake_wait(fake, pid);
}

/* Not every file system has. */
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
        {.method = "status", .body = running},
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
    assert_has(outcome.err, "gpt goes on");
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

static void test_resize(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "resize", .body = "{\"job\":\"gpt\",\"from\":1,\"want\":3,\"asked\":55}"},
        {.method = "resize", .body = "{\"job\":\"gpt\",\"from\":1,\"want\":3,\"asked\":55}"},
        {.method = "resize", .body = "{\"job\":\"gpt\",\"from\":1,\"want\":3,\"asked\":55}"},
        {.method = "resize",
         .body = "{\"job\":\"gpt\",\"from\":3,\"want\":3,\"asked\":55,\"unchanged\":true}"},
        {.method = "resize", .body = "{\"job\":\"gpt\",\"from\":2,\"want\":3,\"asked\":55}"},
        {.method = "resize",
         .body = "{\"job\":\"gpt\",\"from\":2,\"wanted\":4,\"want\":3,\"asked\":55}"},
        {.method = "receipt", .body = "{\"done\":false,\"phase\":\"Running\"}"},
        {.method = "receipt",
         .body =
             "{\"done\":true,\"phase\":\"Running\",\"receipt\":{\"from\":1,\"to\":3,"
             "\"configuration\":2,\"step\":812,\"stallMs\":35.5,\"readyMs\":412,"
             "\"bytesMoved\":1024,\"stepsLost\":0,\"samplesRepeated\":0,\"samplesSkipped\":0}}"},
        {.method = "receipt", .body = "{\"done\":true,\"reason\":\"superseded\"}"},
        {.method = "receipt", .body = "{\"done\":false,\"phase\":\"Running\"}"},
        {.method = "receipt", .body = "{\"done\":true,\"unchanged\":true}"},
        {.method = "status", .body = running},
        {0},
    };
    static const char *const fields[] = {
        "from",        "to",         "configuration",    "step",           "stall_ms", "ready_ms",
        "bytes_moved", "steps_lost", "samples_repeated", "samples_skipped"};
    struct fake fake;
    json_t *json;

    (void)state;
    fake_start(&fake, replies);
    expect(&fake, 0, "gpt: 1 -> 3 devices\n", "", WORDS("grow", "gpt", "+2"));
    assert_called(&fake, "resize leader {\"grow\":2,\"job\":\"gpt\"}");
    json = run_json(&fake, WORDS("grow", "gpt", "2", "--wait", "-o", "json", "--timeout", "1m"));
    assert_int_equal(json_object_size(json), RB_COUNT(fields));
    for (size_t i = 0; i < RB_COUNT(fields); i++)
        assert_true(json_is_number(json_object_get(json, fields[i])));
    assert_true(json_real_value(json_object_get(json, "stall_ms")) == 35.5);
    json_decref(json);
    assert_called(&fake, "receipt leader {\"job\":\"gpt\",\"asked\":55}");
    expect(&fake, 1, "", "superseded",
           WORDS("resize", "gpt", "--devices", "a:0,b:1", "--devices", "c:2", "--wait"));
    assert_called(&fake, "{\"devices\":[\"a:0\",\"b:1\",\"c:2\"],\"want\":3,\"job\":\"gpt\"}");
    for (int i = 0; i < 2; i++) { /* found so at once, and by the wish that came of it */
        json = run_json(&fake, WORDS("shrink", "gpt", "1", "--wait", "-o", "json"));
        assert_int_equal(json_integer_value(json_object_get(json, "from")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "to")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "configuration")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "ready_ms")), 0);
        json_decref(json);
    }
    expect(&fake, 0, "gpt: wants 3 devices instead of 4, has 2\n", "", WORDS("shrink", "gpt", "1"));
    fake_stop(&fake);
}

static void test_nodes_and_jobs(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "node", .body = "{\"node\":\"a\",\"jobs\":[\"x\",\"y\"]}"},
        {.method = "node", .body = "{\"node\":\"a\",\"jobs\":[\"x\"]}"},
        {.method = "node", .body = "{\"node\":\"a\",\"jobs\":[],\"drained\":true}"},
        {.method = "node", .body = "{\"node\":\"b\",\"jobs\":[\"x\"],\"until\":1700000000000}"},
        {.method = "node",
         .body = "{\"node\":\"b\",\"jobs\":[],\"drained\":true,\"until\":1700000000000}"},
        {.method = "node", .body = "{\"node\":\"c\",\"jobs\":[\"x\"],\"drained\":true}"},
        {.method = "node", .body = "{\"node\":\"c\",\"jobs\":[\"x\"],\"drained\":false}"},
        {.method = "delete", .body = "{\"job\":\"gpt\",\"phase\":\"Running\"}"},
        {.method = "delete", .body = "{\"job\":\"gpt\",\"phase\":\"Succeeded\"}"},
        {.method = "pause", .body = "{\"job\":\"gpt\",\"phase\":\"Paused\"}"},
        {.method = "checkpoint", .body = "{\"step\":5,\"path\":\"/c/step-5\",\"node\":\"a\"}"},
        {.method = "checkpoint", .how = FAKE_SILENCE},
        {.method = "status", .body = running},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    expect(&fake, 0, "a: drained; still used by x, y\n", "", WORDS("node", "drain", "a"));
    expect(&fake, 0, "a: drained\n", "", WORDS("node", "drain", "a", "--wait"));
    assert_called(&fake, "node leader {\"node\":\"a\",\"verb\":\"drain\"}");
    expect(&fake, 2, "", "--deadline", WORDS("node", "drain", "b", "--deadline", "soon"));
    expect(&fake, 0, "b: drained, to be left by 2023-11-14 22:13:20\n", "",
           WORDS("node", "drain", "b", "--deadline", "2m", "--wait"));
    assert_called(&fake, "{\"node\":\"b\",\"verb\":\"drain\",\"deadline\":120000}");
    assert_called(&fake, "{\"node\":\"b\",\"verb\":\"look\"}"); /* who waits changes nothing */
    expect(&fake, 4, "", "took it back", WORDS("node", "drain", "c", "--wait"));
    expect(&fake, 0, "now Paused", "", WORDS("pause", "gpt"));
    expect(&fake, 0, "gpt: is cancelled and deleted\n", "", WORDS("delete", "gpt"));
    expect(&fake, 0, "gpt: deleted\n", "", WORDS("delete", "gpt"));
    expect(&fake, 0, "step 5 in /c/step-5 on a", "", WORDS("checkpoint", "gpt", "--wait"));
    expect(&fake, 124, "", "timed out; the checkpoint of gpt goes on",
           WORDS("checkpoint", "gpt", "--wait", "--timeout", "0"));
    fake_stop(&fake);
}

static void test_export(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "export", .data = "eight by", .body = "{\"step\":9,\"bytes\":8}"},
        {.method = "export", .data = "eight", .body = "{\"step\":9,\"bytes\":8}"},
        {.method = "export", .data = "eight", .error = RB_EREFUSED, .why = "no step yet"},
        {.method = "status", .data = "surprise"},
        {0},
    };
    struct rb_buffer file = {0};
    struct fake fake;
    char path[100];

    (void)state;
    fake_start(&fake, replies);
    snprintf(path, sizeof path, "%s/m", fake.folder);
    expect(&fake, 0, "m: step 9 of gpt, 8 B\n", "", WORDS("export", "gpt", "--out", "m"));
    assert_int_equal(rb_file_read(path, 100, &file, NULL), 0);
    assert_string_equal(file.data, "eight by");
    expect(&fake, 1, "", "5 bytes came of 8", WORDS("export", "gpt", "--out", "m"));
    expect(&fake, 4, "", "no step yet", WORDS("export", "gpt", "--out", "m"));
    rb_buffer_clear(&file);
    assert_int_equal(rb_file_read(path, 100, &file, NULL), 0); /* the old one is whole */
    assert_string_equal(file.data, "eight by");
    expect(&fake, 5, "", "data where none", WORDS("status", "gpt"));
    rb_buffer_done(&file);
    fake_stop(&fake);
}

/* What is no regular file stays what it is, and one that is keeps its mode. */
static void test_output(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "export", .data = "eight by", .body = "{\"step\":9,\"bytes\":8}"}, {0}};
    struct rb_buffer file = {0};
    struct stat status;
    struct fake fake;
    char path[100];

    (void)state;
    fake_start(&fake, replies);
    put(&fake, "kept", "old");
    snprintf(path, sizeof path, "%s/kept", fake.folder);
    assert_int_equal(chmod(path, 0600), 0);
    snprintf(path, sizeof path, "%s/link", fake.folder);
    assert_int_equal(symlink("kept", path), 0);
    expect(&fake, 0, "link: step 9 of gpt", "", WORDS("export", "gpt", "--out", "link"));
    assert_int_equal(rb_file_read(path, 100, &file, NULL), 0);
    assert_string_equal(file.data, "eight by");
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    expect(&fake, 0, "null: step 9 of gpt", "", WORDS("export", "gpt", "--out", "/dev/null"));
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    expect(&fake, 0, "eight by", "stdout: step 9 of gpt", WORDS("export", "gpt", "--out", "-"));
    expect(&fake, 2, "", "names a folder",
           WORDS("model", "run", "m.onnx", "--input", "x.npy", "--out", "-"));
    expect(&fake, 3, "", "cannot create nowhere/m: No such file or directory",
           WORDS("export", "gpt", "--out", "nowhere/m"));
    expect(&fake, 3, "", "cannot create nowhere/m: No such file or directory",
           WORDS("model", "new", "gpt", "--out", "nowhere/m"));
    rb_buffer_done(&file);
    fake_stop(&fake);
}

static void read_in(const struct fake *fake, const char *folder, const char *name,
                    struct rb_buffer *ret)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s/%s", fake->folder, folder, name);

    rb_buffer_clear(ret);
    assert_int_equal(rb_file_read(path, 1 << 20, ret, NULL), 0);
}

#define ROW(step) "[" #step ",1700000000000,2.5,\"nan\",null]"

static void test_metrics(void **state)
{
    static const char columns[] = "\"columns\":[\"step\",\"time\",\"loss\",\"grad_norm\",\"lr\"]";
    static char pages[4][300];
    struct fake_reply replies[] = {
        {.method = "metrics", .body = pages[0]}, {.method = "metrics", .body = pages[2]},
        {.method = "metrics", .body = pages[0]}, {.method = "metrics", .body = pages[2]},
        {.method = "metrics", .body = pages[0]}, {.method = "metrics", .body = pages[3]},
        {.method = "metrics", .body = pages[1]}, {.method = "metrics", .body = pages[2]},
        {.method = "metrics", .body = pages[2]}, {0},
    };
    struct fake fake;
    json_t *json;

    (void)state;
    snprintf(pages[0], 300, "{%s,\"rows\":[%s,%s],\"phase\":\"Running\"}", columns, ROW(1), ROW(2));
    snprintf(pages[1], 300, "{%s,\"rows\":[%s],\"phase\":\"Succeeded\"}", columns, ROW(3));
    snprintf(pages[2], 300, "{%s,\"rows\":[],\"phase\":\"Succeeded\"}", columns);
    snprintf(pages[3], 300, "{%s,\"rows\":[],\"phase\":\"Running\"}", columns);
    fake_start(&fake, replies);
    expect(&fake, 0,
           "step,time,loss,grad_norm,lr\n1,1700000000000,2.5,nan,nan\n"
           "2,1700000000000,2.5,nan,nan\n",
           "", WORDS("metrics", "gpt"));
    json = run_json(&fake, WORDS("metrics", "gpt", "-o", "json"));
    assert_int_equal(json_array_size(json), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json, 1), "step")), 2);
    json_decref(json);
    expect(&fake, 0, "lr\n1,1700000000000,2.5,nan,nan\n2,1700000000000,2.5,nan,nan\n3,17", "",
           WORDS("metrics", "gpt", "--follow"));
    assert_called(&fake, "\"after\":2");
    expect(&fake, 0, "step,time,loss,grad_norm,lr\n", "", WORDS("metrics", "gpt")); /* no rows */
    expect(&fake, 0, "", "gpt has done no step", WORDS("metrics", "gpt", "--tensorboard", "runs"));
    expect(&fake, 2, "", "into which folder", WORDS("metrics", "gpt", "--tensorboard", ""));
    expect(&fake, 2, "", "none with --lost",
           WORDS("metrics", "gpt", "--tensorboard", "runs", "--lost"));
    fake_stop(&fake);
}

#define PAGE(rows)                                                                                 \
    "{\"columns\":[\"step\",\"time\",\"loss\",\"grad_norm\",\"lr\"],\"rows\":[" rows               \
    "],\"phase\":\"Succeeded\"}"

/* The same bytes, whether it is written at once, or anew, or page by page. */
static void test_tensorboard(void **state)
{
    static const char file[] = "events.out.tfevents.1700000000.gpt";
    static const char all[] = PAGE(ROW(1) "," ROW(2)), none[] = PAGE("");
    static const char first[] = PAGE(ROW(1)), second[] = PAGE(ROW(2));
    static const struct fake_reply replies[] = {
        {.method = "metrics", .body = all},   {.method = "metrics", .body = none},
        {.method = "metrics", .body = all},   {.method = "metrics", .body = none},
        {.method = "metrics", .body = first}, {.method = "metrics", .body = second},
        {.method = "metrics", .body = none},  {0},
    };
    struct rb_buffer once = {0}, again = {0};
    struct fake fake;
    json_t *json;

    (void)state;
    fake_start(&fake, replies);
    expect(&fake, 0, "runs/events.out.tfevents.1700000000.gpt: steps 1 to 2 of gpt\n", "",
           WORDS("metrics", "gpt", "--tensorboard", "runs"));
    read_in(&fake, "runs", file, &once);
    json = run_json(&fake, WORDS("metrics", "gpt", "--tensorboard", "runs", "-o", "json"));
    assert_int_equal(json_integer_value(json_object_get(json, "rows")), 2);
    json_decref(json);
    read_in(&fake, "runs", file, &again);
    assert_int_equal(again.size, once.size);
    assert_memory_equal(again.data, once.data, once.size);
    expect(&fake, 0, "steps 1 to 2 of gpt\n", "",
           WORDS("metrics", "gpt", "--tensorboard", "a/b", "--follow"));
    read_in(&fake, "a/b", file, &again);
    assert_int_equal(again.size, once.size);
    assert_memory_equal(again.data, once.data, once.size);
    rb_buffer_done(&once);
    rb_buffer_done(&again);
    fake_stop(&fake);
}

static void test_logs(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "logs",
         .body = "{\"pieces\":[{\"file\":\"w1\",\"node\":\"a\",\"offset\":6,\"text\":\"one\\ntw\"},"
                 "{\"file\":\"w2\",\"node\":\"a\",\"offset\":5,\"text\":\"x\"}],"
                 "\"phase\":\"Running\"}"},
        {.method = "logs",
         .body = "{\"pieces\":[{\"file\":\"w1\",\"node\":\"a\",\"offset\":8,\"text\":\"o\\n\"}],"
                 "\"phase\":\"Running\"}"},
        {.method = "logs", .body = "{\"pieces\":[],\"phase\":\"Running\"}"},
        {.method = "logs", .body = "{\"pieces\":[],\"phase\":\"Cancelled\"}"},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    expect(&fake, 0, "[a w1] one\n[a w1] two\n[a w2] x\n", "", WORDS("logs", "gpt", "-f"));
    assert_called(&fake, "\"after\":{\"w1\":8,\"w2\":5}");
    fake_stop(&fake);
}

/* What `profile` says adds up, and products are counted: 2 x 5 samples x (4 x 8 + 8 x 3) forward
 * and for the weights, and 8 x 3 once more for what goes back. */
static void test_profile(void **state)
{
    static const struct fake_reply none[] = {{0}};
    json_t *json, *row;
    struct fake fake;
    double ms = 0;
    size_t i;

    (void)state;
    fake_start(&fake, none);
    expect(&fake, 0, "", "m.onnx",
           WORDS("model", "new", "mlp", "--set", "inputs=4", "--set", "hidden=8", "--set",
                 "depth=1", "--set", "classes=3", "--out", "m.onnx"));
    json = run_json(&fake, WORDS("profile", "m.onnx", "--batch", "5", "-o", "json"));
    assert_int_equal(json_integer_value(json_object_get(json, "batch")), 5);
    json_array_foreach(json_object_get(json, "operators"), i, row)
    {
        ms += json_number_value(json_object_get(row, "ms"));
        if (strcmp(json_string_value(json_object_get(row, "operator")), "MatMul") == 0)
            assert_true(json_number_value(json_object_get(row, "flops")) ==
                        2 * 5 * (2 * (4 * 8 + 8 * 3) + 8 * 3));
    }
    assert_true(i > 3 && ms > 0);
    assert_true(fabs(ms - json_number_value(json_object_get(json, "ms"))) < 1e-6 * ms);
    json_decref(json);
    expect(&fake, 0, "ReluGrad", "", WORDS("profile", "m.onnx"));
    expect(&fake, 3, "", "none.onnx", WORDS("profile", "none.onnx"));
    expect(&fake, 2, "", "--batch goes with a model", WORDS("profile", "gpt", "--batch", "5"));
    fake_stop(&fake);
}

/* What zeros give is the same in all rows, but for the order in which a product adds up in them. */
static void expect_equal_rows(const char *bytes, size_t rows, size_t columns)
{
    float values[40 * 10];

    assert_true(rows * columns <= sizeof values / sizeof values[0]);
    memcpy(values, bytes, rows * columns * sizeof values[0]);
    for (size_t i = columns; i < rows * columns; i++)
        assert_float_equal(values[i], values[i % columns], 1e-6);
}

static void test_models(void **state)
{
    static const struct fake_reply none[] = {{0}};
    static const char npy[] =
        "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, 'shape': "
        "(40, 4), }";
    struct rb_buffer file = {0};
    struct fake fake;
    char path[100];
    json_t *json;

    (void)state;
    fake_start(&fake, none);
    expect(
        &fake, 0, "", "m.onnx",
        WORDS("model", "new", "mlp", "--set", "inputs=4", "--set", "hidden=8", "--out", "m.onnx"));
    expect(&fake, 4, "", "nope", WORDS("model", "new", "mlp", "--set", "nope=4", "--out", "n"));
    expect(&fake, 4, "", "xyz", WORDS("model", "new", "xyz", "--out", "n"));
    expect(&fake, 0, "will be trained", "", WORDS("model", "check", "m.onnx"));
    json = run_json(&fake, WORDS("model", "check", "m.onnx", "-o", "json"));
    assert_true(json_is_true(json_object_get(json, "trainable")));
    json_decref(json);
    put(&fake, "noise.onnx", "this is no model");
    expect(&fake, 4, "", "noise.onnx", WORDS("model", "check", "noise.onnx"));
    expect(&fake, 3, "", "none.onnx", WORDS("model", "check", "none.onnx"));

    rb_buffer_add(&file, npy, sizeof npy - 1);
    while (file.size < 127)
        rb_buffer_text(&file, " ");
    rb_buffer_text(&file, "\n");
    memset(rb_buffer_reserve(&file, 640), 0, 640);
    file.size += 640;
    snprintf(path, sizeof path, "%s/x.npy", fake.folder);
    assert_int_equal(rb_file_write(path, file.data, file.size, NULL), 0);
    expect(&fake, 0, "result/logits.npy", "",
           WORDS("model", "run", "m.onnx", "--input", "x.npy", "--out", "result"));
    rb_buffer_clear(&file);
    snprintf(path, sizeof path, "%s/result/logits.npy", fake.folder);
    assert_int_equal(rb_file_read(path, 1 << 20, &file, NULL), 0);
    assert_non_null(strstr(file.data + 10, "'shape': (40, 10), }"));
    assert_int_equal(file.size, 128 + 40 * 10 * 4);
    expect_equal_rows(file.data + 128, 40, 10);
    rb_buffer_done(&file);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_usage),          cmocka_unit_test(test_errors),
        cmocka_unit_test(test_reading),        cmocka_unit_test(test_submit),
        cmocka_unit_test(test_wait),           cmocka_unit_test(test_wait_for_deleted),
        cmocka_unit_test(test_interrupt),      cmocka_unit_test(test_resize),
        cmocka_unit_test(test_nodes_and_jobs), cmocka_unit_test(test_export),
        cmocka_unit_test(test_metrics),        cmocka_unit_test(test_tensorboard),
        cmocka_unit_test(test_logs),           cmocka_unit_test(test_models),
        cmocka_unit_test(test_profile),        cmocka_unit_test(test_output),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
