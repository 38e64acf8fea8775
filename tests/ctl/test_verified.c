/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/verified.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NO_END = 1 << 20 };

/* A reply to `metrics` with steps from..to; `step` has the given `loss`. */
static json_t *page(int from, int to, int devices, int step, json_t *loss)
{
    json_t *rows = json_array();

    for (int s = from; s <= to; s++)
        json_array_append_new(rows, json_pack("[iofi]", s,
                                              s == step ? json_incref(loss) : json_real(1.0 / s),
                                              1e3 * s + devices, devices));
    json_decref(loss);
    return json_pack("{s:[ssss],s:o}", "columns", "step", "loss", "time", "devices", "rows", rows);
}

static json_t *plain(int from, int to, int devices)
{
    return page(from, to, devices, 0, NULL);
}

static void add(struct rb_same_rows *same, json_t *there, json_t *again, int64_t until)
{
    rb_same_rows_add(same, there, again, until);
    json_decref(there);
    json_decref(again);
}

static void assert_text(const struct rb_verified *verified, const char *expected)
{
    struct rb_buffer out = {0};

    rb_verified_text(verified, &out);
    assert_string_equal(out.data, expected);
    rb_buffer_done(&out);
}

static void test_same(void **state)
{
    struct rb_verified verified = {.job = "gpt"};
    struct rb_same_rows *same = &verified.rows;

    (void)state;
    add(same, plain(1, 40, 1), plain(1, 10, 3), NO_END);
    assert_int_equal(same->after, 10);
    add(same, plain(11, 40, 2), plain(11, 60, 3), NO_END);
    assert_int_equal(same->after, 40);
    add(same, plain(41, 60, 4), plain(41, 60, 3), 50);
    assert_int_equal(same->after, 50);
    assert_int_equal(same->rows, 50);
    assert_true(rb_verified_same(&verified));
    assert_text(&verified, "gpt: steps 1 to 50 are the same on 3 devices as on 1 to 4 devices\n");
    strcpy(verified.there, "ab");
    assert_false(rb_verified_same(&verified));
    strcpy(verified.again, "ab");
    assert_true(rb_verified_same(&verified));
    assert_text(&verified, "gpt: steps 1 to 50 are the same on 3 devices as on 1 to 4 devices\n"
                           "gpt: and so are the weights: sha256 ab\n");
    strcpy(verified.again, "cd");
    assert_text(&verified, "gpt: steps 1 to 50 are the same on 3 devices as on 1 to 4 devices\n"
                           "gpt: the weights differ: sha256 was ab and is cd\n");
    rb_same_rows_done(same);
}

/* One bit of one number differs, where pages overlap only in part. */
static void test_differs(void **state)
{
    struct rb_verified verified = {.job = "gpt"};
    struct rb_same_rows *same = &verified.rows;
    json_t *json;

    (void)state;
    add(same, plain(1, 20, 1), page(1, 30, 2, 17, json_real(nextafter(1.0 / 17, 1))), NO_END);
    assert_int_equal(same->step, 17);
    assert_int_equal(same->rows, 17);
    assert_string_equal(same->column, "loss");
    assert_false(rb_verified_same(&verified));
    assert_text(&verified, "gpt: step 17 differs: loss was 0.058823529411764705 and is "
                           "0.058823529411764712 on 2 devices\n");
    json = rb_verified_json(&verified);
    assert_true(json_is_false(json_object_get(json, "same")));
    assert_true(json_is_null(json_object_get(json, "sha256")));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json, "difference"), "step")), 17);
    json_decref(json);
    rb_same_rows_done(same);
}

/* Numbers that are not finite are words; a value that only one job has differs from none. */
static void test_words(void **state)
{
    struct rb_same_rows same = {0}, other = {0}, absent = {0};

    (void)state;
    add(&same, page(1, 3, 1, 2, json_string("nan")), page(1, 3, 2, 2, json_string("nan")), NO_END);
    assert_int_equal(same.step, 0);
    assert_int_equal(same.rows, 3);
    add(&other, page(1, 3, 1, 2, json_string("inf")), page(1, 3, 2, 2, json_string("nan")), NO_END);
    assert_int_equal(other.step, 2);
    add(&absent, page(1, 3, 1, 3, json_null()), plain(1, 3, 2), NO_END);
    assert_int_equal(absent.step, 3);
    rb_same_rows_done(&same);
    rb_same_rows_done(&other);
    rb_same_rows_done(&absent);
}

/* Steps of which only one job has a row prove nothing, and do not stop the others. */
static void test_gaps(void **state)
{
    struct rb_verified verified = {.job = "gpt"};
    struct rb_same_rows *same = &verified.rows;

    (void)state;
    add(same, plain(1, 10, 1), plain(3, 10, 2), NO_END); /* it went on from a checkpoint */
    assert_int_equal(same->first, 3);
    add(same, plain(12, 20, 1), plain(11, 20, 2), NO_END);
    assert_int_equal(same->last, 20);
    assert_int_equal(same->rows, 17);
    assert_text(
        &verified,
        "gpt: steps 3 to 20 are the same on 2 devices as on 1 device; 1 of them has no row\n");
    add(same, plain(1, 0, 1), plain(21, 25, 2), NO_END); /* the first job has no rows any more */
    assert_int_equal(same->after, 25);
    assert_int_equal(same->rows, 17);
    add(same, plain(26, 30, 1), plain(1, 0, 2), NO_END); /* nothing new */
    assert_int_equal(same->after, 25);
    rb_same_rows_done(same);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_differs),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_gaps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
