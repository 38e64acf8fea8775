/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that change jobs and nodes: the calls to rubatod, and what is printed of the answers. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/error.h"
#include "tests/ctl/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

static void test_submit(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "submit",
         .body = "{\"name\":\"gpt\",\"id\":\"1\",\"steps\":10,\"summary\":\"3.3 M parameters\","
                 "\"notes\":[\"a mask is trained\"]}"},
        {.method = "status",
         .body = "{\"phase\":\"Pending\",\"step\":0,\"steps\":10,\"devices\":[]}"},
        {.method = "status", .body = cli_running},
        {.method = "status", .body = cli_succeeded},
        {0},
    };
    RB_CLEANUP(rb_freep) char *where = NULL;
    struct fake fake;
    json_t *json;

    (void)state;
    fake_start(&fake, replies);
    cli_put(&fake, "job.yaml", cli_job);
    cli_put(&fake, "bad.yaml", "apiVersion: rubato/v1\nkind: TrainJob\nspec:\n  modell: {}\n");
    cli_expect(&fake, 4, "", "bad.yaml:4:3: unknown key 'modell', did you mean 'model'?",
               WORDS("submit", "-f", "bad.yaml"));
    cli_expect(&fake, 4, "", "--set spec.train.steps=0",
               WORDS("submit", "-f", "job.yaml", "--set", "spec.train.steps=0"));
    cli_expect(&fake, 3, "", "none.yaml", WORDS("submit", "-f", "none.yaml"));
    cli_expect(&fake, 0, "gpt: 3.3 M parameters; 10 steps\n", "status gpt",
               WORDS("submit", "-f", "job.yaml", "--set", "spec.train.seed=5"));
    cli_expect(&fake, 0, "gpt: 3.3 M", "rubatoctl: a mask is trained\n",
               WORDS("submit", "-f", "job.yaml"));
    cli_put(&fake, "in", cli_job);
    cli_expect(&fake, 0, "gpt: 3.3 M", "",
               WORDS("submit", "-f", "-", "--set", "spec.train.seed=6"));
    where = rb_format("%s/gpt.onnx\"", strrchr(fake.folder, '/'));
    cli_called(&fake, "\"seed\":6");
    cli_called(&fake, where);
    cli_called(&fake, "\"globalBatch\":32");
    cli_called(&fake, "\"seed\":5");
    cli_called(&fake, "/gpt.onnx\"");
    cli_called(&fake, "\"window\":\"1h\"");
    cli_expect(&fake, 0, "gpt: Succeeded at step 10 of 10, loss 2.2500", "Pending | step 0/10",
               WORDS("submit", "-f", "job.yaml", "--wait"));
    json = cli_run_json(&fake, WORDS("submit", "-f", "job.yaml", "--wait", "-o", "json"));
    assert_string_equal(json_string_value(json_object_get(json, "phase")), "Succeeded");
    json_decref(json);
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
        {.method = "status", .body = cli_running},
        {0},
    };
    static const char *const fields[] = {
        "from",        "to",         "configuration",    "step",           "stall_ms", "ready_ms",
        "bytes_moved", "steps_lost", "samples_repeated", "samples_skipped"};
    struct fake fake;
    json_t *json;

    (void)state;
    fake_start(&fake, replies);
    cli_expect(&fake, 0, "gpt: 1 -> 3 devices\n", "", WORDS("grow", "gpt", "+2"));
    cli_called(&fake, "resize leader {\"grow\":2,\"job\":\"gpt\"}");
    json =
        cli_run_json(&fake, WORDS("grow", "gpt", "2", "--wait", "-o", "json", "--timeout", "1m"));
    assert_int_equal(json_object_size(json), RB_COUNT(fields));
    for (size_t i = 0; i < RB_COUNT(fields); i++)
        assert_true(json_is_number(json_object_get(json, fields[i])));
    assert_true(json_real_value(json_object_get(json, "stall_ms")) == 35.5);
    json_decref(json);
    cli_called(&fake, "receipt leader {\"job\":\"gpt\",\"asked\":55}");
    cli_expect(&fake, 1, "", "superseded",
               WORDS("resize", "gpt", "--devices", "a:0,b:1", "--devices", "c:2", "--wait"));
    cli_called(&fake, "{\"devices\":[\"a:0\",\"b:1\",\"c:2\"],\"want\":3,\"job\":\"gpt\"}");
    for (int i = 0; i < 2; i++) { /* found at once, and found by the wish that was made */
        json = cli_run_json(&fake, WORDS("shrink", "gpt", "1", "--wait", "-o", "json"));
        assert_int_equal(json_integer_value(json_object_get(json, "from")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "to")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "configuration")), 3);
        assert_int_equal(json_integer_value(json_object_get(json, "ready_ms")), 0);
        json_decref(json);
    }
    cli_expect(&fake, 0, "gpt: wants 3 devices instead of 4, has 2\n", "",
               WORDS("shrink", "gpt", "1"));
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
        {.method = "pause", .body = "{\"job\":\"gpt\",\"phase\":\"Running\"}"},
        {.method = "pause", .body = "{\"job\":\"gpt\",\"phase\":\"Paused\"}"},
        {.method = "cancel", .body = "{\"job\":\"gpt\",\"phase\":\"Cancelled\"}"},
        {.method = "checkpoint", .body = "{\"step\":5,\"path\":\"/c/step-5\",\"node\":\"a\"}"},
        {.method = "checkpoint", .how = FAKE_SILENCE},
        {.method = "status", .body = cli_running},
        {0},
    };
    struct fake fake;

    (void)state;
    fake_start(&fake, replies);
    cli_expect(&fake, 0, "a: drained; still used by x, y\n", "", WORDS("node", "drain", "a"));
    cli_expect(&fake, 0, "a: drained\n", "", WORDS("node", "drain", "a", "--wait"));
    cli_called(&fake, "node leader {\"node\":\"a\",\"verb\":\"drain\"}");
    cli_expect(&fake, 2, "", "--deadline", WORDS("node", "drain", "b", "--deadline", "soon"));
    cli_expect(&fake, 0, "b: drained, to be left by 2023-11-14 22:13:20\n", "",
               WORDS("node", "drain", "b", "--deadline", "2m", "--wait"));
    cli_called(&fake, "{\"node\":\"b\",\"verb\":\"drain\",\"deadline\":120000}");
    cli_called(&fake, "{\"node\":\"b\",\"verb\":\"look\"}"); /* waiting changes nothing */
    cli_expect(&fake, 4, "", "took it back", WORDS("node", "drain", "c", "--wait"));
    cli_expect(&fake, 0, "gpt: pause asked for, now Running\n", "", WORDS("pause", "gpt"));
    cli_expect(&fake, 0, "gpt: is Paused already\n", "", WORDS("pause", "gpt"));
    cli_expect(&fake, 0, "gpt: is Cancelled already\n", "", WORDS("cancel", "gpt"));
    cli_expect(&fake, 0, "gpt: is cancelled and deleted\n", "", WORDS("delete", "gpt"));
    cli_expect(&fake, 0, "gpt: deleted\n", "", WORDS("delete", "gpt"));
    cli_expect(&fake, 0, "step 5 in /c/step-5 on a", "", WORDS("checkpoint", "gpt", "--wait"));
    cli_expect(&fake, 124, "", "timed out; the checkpoint of gpt goes on",
               WORDS("checkpoint", "gpt", "--wait", "--timeout", "0"));
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_submit),
        cmocka_unit_test(test_resize),
        cmocka_unit_test(test_nodes_and_jobs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
