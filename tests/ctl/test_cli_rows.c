/* SPDX-License-Identifier: Apache-2.0 */
/* Rows and logs, page by page: as CSV, as JSON, as event files, and while more come. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "tests/ctl/cli.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>

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
    cli_expect(&fake, 0,
               "step,time,loss,grad_norm,lr\n1,1700000000000,2.5,nan,nan\n"
               "2,1700000000000,2.5,nan,nan\n",
               "", WORDS("metrics", "gpt"));
    json = cli_run_json(&fake, WORDS("metrics", "gpt", "-o", "json"));
    assert_int_equal(json_array_size(json), 2);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(json, 1), "step")), 2);
    json_decref(json);
    cli_expect(&fake, 0, "lr\n1,1700000000000,2.5,nan,nan\n2,1700000000000,2.5,nan,nan\n3,17", "",
               WORDS("metrics", "gpt", "--follow"));
    cli_called(&fake, "\"after\":2");
    cli_expect(&fake, 0, "step,time,loss,grad_norm,lr\n", "",
               WORDS("metrics", "gpt")); /* no rows */
    cli_expect(&fake, 0, "", "gpt has done no step",
               WORDS("metrics", "gpt", "--tensorboard", "runs"));
    cli_expect(&fake, 2, "", "into which folder", WORDS("metrics", "gpt", "--tensorboard", ""));
    cli_expect(&fake, 2, "", "none with --lost",
               WORDS("metrics", "gpt", "--tensorboard", "runs", "--lost"));
    fake_stop(&fake);
}

#define PAGE(rows)                                                                                 \
    "{\"columns\":[\"step\",\"time\",\"loss\",\"grad_norm\",\"lr\"],\"rows\":[" rows               \
    "],\"phase\":\"Succeeded\"}"

/* The same bytes, whether the file is written at once, or anew, or page by page. */
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
    cli_expect(&fake, 0, "runs/events.out.tfevents.1700000000.gpt: steps 1 to 2 of gpt\n", "",
               WORDS("metrics", "gpt", "--tensorboard", "runs"));
    read_in(&fake, "runs", file, &once);
    json = cli_run_json(&fake, WORDS("metrics", "gpt", "--tensorboard", "runs", "-o", "json"));
    assert_int_equal(json_integer_value(json_object_get(json, "rows")), 2);
    json_decref(json);
    read_in(&fake, "runs", file, &again);
    assert_int_equal(again.size, once.size);
    assert_memory_equal(again.data, once.data, once.size);
    cli_expect(&fake, 0, "steps 1 to 2 of gpt\n", "",
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
    cli_expect(&fake, 0, "[a w1] one\n[a w1] two\n[a w2] x\n", "", WORDS("logs", "gpt", "-f"));
    cli_called(&fake, "\"after\":{\"w1\":8,\"w2\":5}");
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_tensorboard),
        cmocka_unit_test(test_logs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
