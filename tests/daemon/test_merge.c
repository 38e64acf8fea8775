/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of several nodes as one list by step. */
#include "daemon/rpc/methods_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);

    assert_non_null(json);
    return json;
}

static void check_merge(const char *answers, struct rb_merge merge, const char *expected)
{
    json_t *in = parse(answers), *want = parse(expected), *columns;
    json_t *rows = rb_merge_rows(in, &merge, &columns);

    if (!json_equal(rows, want))
        fail_msg("got %s", json_dumps(rows, 0));
    json_decref(in);
    json_decref(want);
    json_decref(columns);
    json_decref(rows);
}

static void check_with(const char *answers, size_t limit, bool lost, const char *expected)
{
    check_merge(answers, (struct rb_merge){.limit = limit, .lost = lost}, expected);
}

static void check(const char *answers, size_t limit, const char *expected)
{
    check_with(answers, limit, false, expected);
}

#define NODE(rows)                                                                                 \
    "{\"body\":{\"columns\":[\"step\",\"time\",\"configuration\"],\"rows\":" rows "}}"

static void each_step_once(void **unused)
{
    (void)unused;
    check("[" NODE("[[1,10,1],[2,20,1]]") "," NODE("[[2,21,1],[3,30,1]]") "]", 10,
          "[[1,10,1],[2,20,1],[3,30,1]]");
}

static void the_newest_configuration_counts(void **unused)
{
    (void)unused;
    check("[" NODE("[[1,10,1],[2,20,1]]") "," NODE("[[2,90,4]]") "]", 10, "[[1,10,1],[2,90,4]]");
}

static void steps_that_were_done_again_are_told_on_request(void **unused)
{
    (void)unused;
    const char *answers =
        "[" NODE("[[1,10,1],[2,20,1],[3,30,1]]") "," NODE("[[2,21,1],[2,90,4],[3,95,4]]") "]";

    check_with(answers, 10, true, "[[1,10,1],[2,90,4],[2,20,1],[3,95,4],[3,30,1]]");
    /* The first node was cut off at step 3, the second is counted by steps, not by rows. */
    check_with(answers, 3, true, "[[1,10,1],[2,90,4],[2,20,1],[3,95,4],[3,30,1]]");
    check_with(answers, 2, true, "[[1,10,1],[2,90,4],[2,20,1]]");
    check(answers, 10, "[[1,10,1],[2,90,4],[3,95,4]]");
}

/* The job went back to step 1, and has not come as far again. */
static void steps_that_were_lost_are_told_on_request(void **unused)
{
    (void)unused;
    const char *answers = "[" NODE("[[1,10,1],[2,20,1],[2,90,4],[3,30,1],[4,40,2]]") "]";

    check_merge(answers, (struct rb_merge){.limit = 10, .configuration = 4, .step = 2},
                "[[1,10,1],[2,90,4]]");
    check_merge(answers, (struct rb_merge){.limit = 10, .configuration = 2, .step = 4},
                "[[1,10,1],[2,90,4],[3,30,1],[4,40,2]]"); /* progress is behind */
    check_merge(answers,
                (struct rb_merge){.limit = 10, .lost = true, .configuration = 4, .step = 2},
                "[[1,10,1],[2,90,4],[2,20,1],[3,30,1],[4,40,2]]");
    check_merge(answers, (struct rb_merge){.limit = 1, .configuration = 4, .step = 2},
                "[[1,10,1]]");
}

static void nothing_beyond_what_all_have_told(void **unused)
{
    (void)unused;
    /* The first node was cut off at step 2: step 3, which it may have, must not be jumped over. */
    check("[" NODE("[[1,10,1],[2,20,1]]") "," NODE("[[4,40,2]]") "]", 2, "[[1,10,1],[2,20,1]]");
}

static void a_node_that_fails_is_left_out(void **unused)
{
    (void)unused;
    check("[{\"error\":-12,\"why\":\"gone\"}," NODE("[[1,10,1]]") "]", 10, "[[1,10,1]]");
    check("[]", 10, "[]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_once),
        cmocka_unit_test(the_newest_configuration_counts),
        cmocka_unit_test(steps_that_were_done_again_are_told_on_request),
        cmocka_unit_test(steps_that_were_lost_are_told_on_request),
        cmocka_unit_test(nothing_beyond_what_all_have_told),
        cmocka_unit_test(a_node_that_fails_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
