/* SPDX-License-Identifier: Apache-2.0 */
/* What a watch's silence means, question by question. */
#include "daemon/etcd/level.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

static void nothing_is_written(void **state)
{
    struct rb_level level = {.heard = 7};

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal(rb_level_answer(&level, true, 7), RB_LEVEL_FINE);
}

static void it_comes_in_time(void **state)
{
    struct rb_level level = {.heard = 7};

    (void)state;
    assert_int_equal(rb_level_answer(&level, true, 9), RB_LEVEL_FINE);
    rb_level_heard(&level, 9);
    assert_int_equal(rb_level_answer(&level, true, 9), RB_LEVEL_FINE);
    rb_level_heard(&level, 8); /* taken twice */
    assert_int_equal(rb_level_answer(&level, true, 9), RB_LEVEL_FINE);
}

static void it_is_behind(void **state)
{
    struct rb_level level = {.heard = 7};

    (void)state;
    assert_int_equal(rb_level_answer(&level, true, 9), RB_LEVEL_FINE);
    assert_int_equal(rb_level_answer(&level, true, 12), RB_LEVEL_ASK);
    assert_int_equal(rb_level_newest(&level, true, 8), RB_LEVEL_BEHIND);
}

/* However much and however long. */
static void others_write(void **state)
{
    struct rb_level level = {.heard = 7};

    (void)state;
    for (int64_t revision = 10; revision < 1000; revision += 10)
        if (rb_level_answer(&level, true, revision) == RB_LEVEL_ASK)
            assert_int_equal(rb_level_newest(&level, true, 7), RB_LEVEL_FINE);
    /* Then this client writes, which the watch does not tell. */
    while (rb_level_answer(&level, true, 1000) == RB_LEVEL_ASK)
        assert_int_equal(rb_level_newest(&level, true, 7), RB_LEVEL_FINE);
    assert_int_equal(rb_level_answer(&level, true, 1002), RB_LEVEL_ASK);
    assert_int_equal(rb_level_newest(&level, true, 1001), RB_LEVEL_FINE); /* it may be on its way */
    assert_int_equal(rb_level_answer(&level, true, 1002), RB_LEVEL_ASK);
    assert_int_equal(rb_level_newest(&level, true, 1001), RB_LEVEL_BEHIND);
}

static void it_does_not_answer(void **state)
{
    struct rb_level level = {.heard = 7};

    (void)state;
    assert_int_equal(rb_level_answer(&level, false, 0), RB_LEVEL_FINE);
    assert_int_equal(rb_level_answer(&level, true, 7), RB_LEVEL_FINE);
    assert_int_equal(rb_level_answer(&level, false, 0), RB_LEVEL_FINE);
    assert_int_equal(rb_level_answer(&level, false, 0), RB_LEVEL_SILENT);
    assert_int_equal(rb_level_newest(&level, false, 0), RB_LEVEL_SILENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_written), cmocka_unit_test(it_comes_in_time),
        cmocka_unit_test(it_is_behind),       cmocka_unit_test(others_write),
        cmocka_unit_test(it_does_not_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
