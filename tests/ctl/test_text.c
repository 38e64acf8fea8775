/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments, numbers, tables, JSON, YAML: everything that needs no rubatod. */
#include "ctl/arguments.h"
#include "ctl/follow.h"
#include "ctl/human.h"
#include "ctl/npy.h"
#include "ctl/progress.h"
#include "ctl/session.h"
#include "ctl/table.h"
#include "ctl/verbs.h"
#include "ctl/write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS "f|file= set=+ wait timeout="

static int parse(struct rb_arguments *ret, struct rb_why *why, int n, const char *const *words)
{
    return rb_arguments_parse(OPTIONS, n, words, false, ret, NULL, why);
}

static void test_arguments(void **state)
{
    static const char *const words[] = {"a",     "-f",     "x",  "--set=k=v", "b", "--set",
                                        "m=n=o", "--wait", "--", "--wait",    "-"};
    struct rb_arguments arguments;
    const char *values[RB_ARGUMENTS_MAX];

    (void)state;
    assert_int_equal(parse(&arguments, NULL, 11, words), 0);
    assert_int_equal(arguments.n_words, 4);
    assert_string_equal(arguments.word[1], "b");
    assert_string_equal(arguments.word[2], "--wait");
    assert_string_equal(arguments.word[3], "-");
    assert_string_equal(rb_arguments_value(&arguments, "file"), "x");
    assert_true(rb_arguments_has(&arguments, "wait"));
    assert_false(rb_arguments_has(&arguments, "timeout"));
    assert_null(rb_arguments_value(&arguments, "timeout"));
    assert_int_equal(rb_arguments_values(&arguments, "set", values), 2);
    assert_string_equal(values[0], "k=v");
    assert_string_equal(values[1], "m=n=o");
}

static void test_arguments_short(void **state)
{
    static const char *const words[] = {"-fx", "-f", "y"};
    struct rb_arguments arguments;

    (void)state;
    assert_int_equal(parse(&arguments, NULL, 1, words), 0);
    assert_string_equal(rb_arguments_value(&arguments, "file"), "x");
    assert_int_equal(parse(&arguments, NULL, 2, words + 1), 0);
    assert_string_equal(rb_arguments_value(&arguments, "file"), "y");
    assert_int_equal(parse(&arguments, NULL, 3, words), RB_EINVAL);
}

static void test_arguments_wrong(void **state)
{
    static const char *const words[] = {"--nope", "-1", "--wait=3", "--set", "-f", "--wai", "--"};
    struct rb_arguments arguments;

    (void)state;
    for (int i = 0; i < 6; i++) {
        struct rb_why why = {0};

        assert_int_equal(parse(&arguments, &why, 1, words + i), RB_EINVAL);
        assert_non_null(strstr(why.text, words[i]));
    }
    assert_int_equal(parse(&arguments, NULL, 1, words + 6), 0);
}

static void test_arguments_before_verb(void **state)
{
    static const char *const words[] = {"--file", "x", "verb", "--nope"};
    struct rb_arguments arguments;
    int used = -1;

    (void)state;
    assert_int_equal(rb_arguments_parse(OPTIONS, 4, words, true, &arguments, &used, NULL), 0);
    assert_int_equal(used, 2);
}

static void test_counts(void **state)
{
    static const char *const bad[] = {"", "-1", "x", "1x", "9999999999999999999", "11", "0"};
    int64_t n = 0;

    (void)state;
    assert_int_equal(rb_arguments_count("2", 1, 10, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_int_equal(rb_arguments_count("+10", 1, 10, &n, NULL), 0);
    assert_int_equal(n, 10);
    for (size_t i = 0; i < RB_COUNT(bad); i++)
        assert_int_equal(rb_arguments_count(bad[i], 1, 10, &n, NULL), RB_EINVAL);
}

static void test_human(void **state)
{
    char text[RB_HUMAN_SIZE];

    (void)state;
    assert_string_equal(rb_human_count(0, text), "0");
    assert_string_equal(rb_human_count(632, text), "632");
    assert_string_equal(rb_human_count(38400, text), "38.4 k");
    assert_string_equal(rb_human_count(999.7, text), "1.00 k");
    assert_string_equal(rb_human_count(3323392, text), "3.32 M");
    assert_string_equal(rb_human_bytes(12, text), "12 B");
    assert_string_equal(rb_human_bytes(13316915, text), "12.7 MiB");
    assert_string_equal(rb_human_span(4.2, text), "4s");
    assert_string_equal(rb_human_span(682, text), "11m22s");
    assert_string_equal(rb_human_span(7500, text), "2h05m");
    assert_string_equal(rb_human_span(273600, text), "3d04h");
    assert_string_equal(rb_human_span(-5, text), "0s");
    assert_string_equal(rb_human_time(1767323045678, text), "2026-01-02 03:04:05");
    assert_string_equal(rb_human_real(3.21431, text), "3.2143");
    assert_string_equal(rb_human_real(0.00012, text), "0.00012");
    assert_string_equal(rb_human_real(__builtin_nan(""), text), "nan");
}

static void test_table(void **state)
{
    static const char *const cells[] = {"NAME", "STEP", "LAST", "g\u00e9", "7",
                                        "x",    "gpt2", "1200", "y\x1b[2J"};
    struct rb_table table = {.columns = 3};
    struct rb_buffer out = {0};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cells); i++)
        rb_table_add(&table, cells[i]);
    rb_table_print(&table, "lrl", &out);
    assert_string_equal(out.data, "NAME  STEP  LAST\n"
                                  "g\u00e9       7  x\n"
                                  "gpt2  1200  y?[2J\n");
    rb_buffer_done(&out);
    rb_table_done(&table);
}

static void assert_written(void write(const json_t *, struct rb_buffer *), const char *json,
                           const char *expected)
{
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    struct rb_buffer out = {0};

    assert_non_null(value);
    write(value, &out);
    assert_string_equal(out.data, expected);
    rb_buffer_done(&out);
    json_decref(value);
}

static void test_json(void **state)
{
    (void)state;
    assert_written(rb_write_json,
                   "{\"a\":0.1,\"b\":[1,2],\"c\":{},\"d\":[{\"e\":1.0}],\"f\":1e300}",
                   "{\n  \"a\": 0.1,\n  \"b\": [1, 2],\n  \"c\": {},\n  \"d\": [\n    {\n"
                   "      \"e\": 1.0\n    }\n  ],\n  \"f\": 1.0e+300\n}\n");
    assert_written(rb_write_line, "{\"a\":[1,{\"b\":null}],\"c\":\"\\n\"}",
                   "{\"a\": [1, {\"b\": null}], \"c\": \"\\n\"}\n");
    assert_written(rb_write_line, "3.2143000000000002", "3.2143\n");
    assert_written(rb_write_line, "0.1000000000000000055511151231257827", "0.1\n");
    assert_written(rb_write_line, "[150.0,1e14,-2.5e3,1e15,1e-8]",
                   "[150.0, 100000000000000.0, -2500.0, 1.0e+15, 1.0e-08]\n");
    assert_written(rb_write_json, "[]", "[]\n");
}

static void test_yaml(void **state)
{
    (void)state;
    assert_written(
        rb_write_yaml,
        "{\"name\":\"gpt\",\"n\":3,\"empty\":[],\"list\":[1,[2,3],{\"a\":1,\"b\":[true]}],"
        "\"in\":{\"x\":{\"y\":null}}}",
        "name: gpt\n"
        "\"n\": 3\n"
        "empty: []\n"
        "list:\n"
        "  - 1\n"
        "  - - 2\n"
        "    - 3\n"
        "  - a: 1\n"
        "    b:\n"
        "      - true\n"
        "in:\n"
        "  x:\n"
        "    \"y\": null\n");
    assert_written(
        rb_write_yaml,
        "[\"no\",\"1\",\"a: b\",\"- x\",\"\",\"a#b\",\"two words\",\"end \",\"x\\ny\",\"~\"]",
        "- \"no\"\n- \"1\"\n- \"a: b\"\n- \"- x\"\n- \"\"\n- \"a#b\"\n- two words\n"
        "- \"end \"\n- \"x\\ny\"\n- \"~\"\n");
}

static void test_goals(void **state)
{
    static const struct {
        const char *goal, *status;
        enum rb_goal_state expected;
    } cases[] = {
        {"done", "{\"phase\":\"Running\"}", RB_GOAL_AHEAD},
        {"done", "{\"phase\":\"Succeeded\"}", RB_GOAL_REACHED},
        {"done", "{\"phase\":\"Failed\"}", RB_GOAL_MISSED},
        {"done", "{\"phase\":\"Cancelled\"}", RB_GOAL_MISSED},
        {"running", "{\"phase\":\"Pending\"}", RB_GOAL_AHEAD},
        {"running", "{\"phase\":\"Running\"}", RB_GOAL_REACHED},
        {"running", "{\"phase\":\"Succeeded\"}", RB_GOAL_MISSED},
        {"step=5", "{\"phase\":\"Running\",\"step\":4}", RB_GOAL_AHEAD},
        {"step=5", "{\"phase\":\"Paused\",\"step\":5}", RB_GOAL_REACHED},
        {"step=5", "{\"phase\":\"Succeeded\",\"step\":9}", RB_GOAL_REACHED},
        {"step=5", "{\"phase\":\"Succeeded\",\"step\":4}", RB_GOAL_MISSED},
        {"devices=2", "{\"phase\":\"Running\",\"devices\":[{}]}", RB_GOAL_AHEAD},
        {"devices=2", "{\"phase\":\"Running\",\"devices\":[{},{}]}", RB_GOAL_REACHED},
        {"devices=2", "{\"phase\":\"Preparing\",\"devices\":[{},{}]}", RB_GOAL_AHEAD},
        {"devices=0", "{\"phase\":\"Paused\",\"devices\":[]}", RB_GOAL_REACHED},
    };
    static const char *const bad[] = {"", "finished", "step", "step=", "step=-1", "devices=x"};
    struct rb_goal goal;

    (void)state;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        json_t *status = json_loads(cases[i].status, 0, NULL);

        assert_int_equal(rb_goal_parse(cases[i].goal, &goal, NULL), 0);
        if (rb_goal_look(&goal, status) != cases[i].expected)
            fail_msg("%s %s", cases[i].goal, cases[i].status);
        json_decref(status);
    }
    for (size_t i = 0; i < RB_COUNT(bad); i++)
        assert_int_equal(rb_goal_parse(bad[i], &goal, NULL), RB_EINVAL);
}

static void test_progress(void **state)
{
    static const char running[] =
        "{\"phase\":\"Running\",\"step\":1200,\"steps\":50000,\"loss\":3.21431,\"samples\":12000,"
        "\"throughput\":715.24,\"devices\":[{},{}]}";
    struct rb_buffer line = {0};
    json_t *status = json_loads(running, 0, NULL);

    (void)state;
    rb_progress_line(status, &line);
    assert_string_equal(line.data,
                        "step 1200/50000 | loss 3.2143 | 715 samples/s | 2 devices | eta 11m22s");
    json_decref(status);
    rb_buffer_clear(&line);
    status = json_loads("{\"phase\":\"Pending\",\"step\":0,\"steps\":5,\"devices\":[{}]}", 0, NULL);
    rb_progress_line(status, &line);
    assert_string_equal(line.data, "Pending | step 0/5 | 1 device");
    json_decref(status);
    rb_buffer_done(&line);
}

static void test_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(rb_session_exit(0), 0);
    assert_int_equal(rb_session_exit(RB_ENOTFOUND), 3);
    assert_int_equal(rb_session_exit(RB_EREFUSED), 4);
    assert_int_equal(rb_session_exit(RB_EFULL), 4);
    assert_int_equal(rb_session_exit(RB_EUNREACHABLE), 5);
    assert_int_equal(rb_session_exit(RB_ETIMEOUT), 124);
    assert_int_equal(rb_session_exit(RB_ECANCELED), 130);
    assert_int_equal(rb_session_exit(RB_EIO), 1);
}

static void test_endpoints(void **state)
{
    static const char *const good[] = {"unix:/x", "tcp:host:1", "tcp:[::1]:65535"};
    static const char *const bad[] = {"",          "/x",     "unix:",    "tcp:host",
                                      "tcp:host:", "tcp::1", "tcp:h:1x", "tcp:h:70000"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(good); i++)
        assert_int_equal(rb_line_check(good[i], NULL), 0);
    for (size_t i = 0; i < RB_COUNT(bad); i++)
        assert_int_equal(rb_line_check(bad[i], NULL), RB_EINVAL);
}

static void test_verbs(void **state)
{
    static const char *const words[] = {"node", "drain", "x"};
    int used = 0;

    (void)state;
    assert_string_equal(rb_verbs_find(words, 3, &used)->name, "node drain");
    assert_int_equal(used, 2);
    assert_null(rb_verbs_find(words, 1, &used));
    assert_null(rb_verbs_find(words + 2, 1, &used));
    assert_true(rb_verbs_group("node"));
    assert_false(rb_verbs_group("nod"));
    for (const struct rb_verb *verb = rb_verbs; verb->name; verb++) {
        assert_non_null(verb->run);
        assert_true(verb->least <= verb->most && verb->summary[0]);
    }
}

static void test_npy(void **state)
{
    struct rb_tensor_type type = {RB_F32, 2, {3, 10}}, row = {RB_I64, 1, {4}};
    struct rb_buffer out = {0};

    (void)state;
    assert_int_equal(rb_npy_header(&type, &out, NULL), 0);
    assert_int_equal(out.size % 64, 0);
    assert_memory_equal(out.data,
                        "\x93NUMPY\1\0\x76\0{'descr': '<f4', 'fortran_order': False, "
                        "'shape': (3, 10), }  ",
                        70);
    assert_int_equal(out.data[out.size - 1], '\n');
    rb_buffer_clear(&out);
    assert_int_equal(rb_npy_header(&row, &out, NULL), 0);
    assert_non_null(strstr(out.data + 10, "'<i8', 'fortran_order': False, 'shape': (4,), }"));
    row.dtype = RB_BF16;
    assert_int_equal(rb_npy_header(&row, &out, NULL), RB_EUNSUPPORTED);
    rb_buffer_done(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_arguments_short),
        cmocka_unit_test(test_arguments_wrong),
        cmocka_unit_test(test_arguments_before_verb),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_human),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_yaml),
        cmocka_unit_test(test_goals),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_exit_codes),
        cmocka_unit_test(test_endpoints),
        cmocka_unit_test(test_verbs),
        cmocka_unit_test(test_npy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
