/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ctl/cli.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

const char cli_running[] =
    "{\"name\":\"gpt\",\"phase\":\"Running\",\"step\":7,\"steps\":10,\"loss\":2.5,\"samples\":70,"
    "\"configuration\":3,\"devices\":[{\"node\":\"a\",\"device\":0,\"kind\":\"cpu\",\"pid\":41}],"
    "\"plan\":{\"summary\":\"data parallel "
    "x1\"},\"throughput\":12.5,\"want\":1,\"min\":1,\"max\":4}";
const char cli_succeeded[] = "{\"name\":\"gpt\",\"phase\":\"Succeeded\",\"step\":10,\"steps\":"
                             "10,\"loss\":2.25,\"devices\":[]}";

const char cli_job[] = "apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: gpt}\nspec:\n"
                       "  model: {onnx: gpt.onnx}\n  data: {train: {path: c.txt}}\n"
                       "  train: {steps: 10}\n";

void cli_has(const char *text, const char *part)
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

void cli_expect(const struct fake *fake, int code, const char *out, const char *err,
                const char *const *words)
{
    struct outcome outcome = run(fake, code, words);

    cli_has(outcome.out, out);
    cli_has(outcome.err, err);
    outcome_done(&outcome);
}

json_t *cli_run_json(const struct fake *fake, const char *const *words)
{
    struct outcome outcome = run(fake, 0, words);
    json_t *json = json_loads(outcome.out, JSON_REJECT_DUPLICATES, NULL);

    if (!json)
        fail_msg("not JSON: %s", outcome.out);
    outcome_done(&outcome);
    return json;
}

void cli_called(const struct fake *fake, const char *part)
{
    char *calls = fake_calls(fake);

    cli_has(calls, part);
    free(calls);
}

void cli_put(const struct fake *fake, const char *name, const char *text)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", fake->folder, name);

    assert_int_equal(rb_file_write(path, text, strlen(text), NULL), 0);
}
