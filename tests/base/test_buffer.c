/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void grows(void **state)
{
    struct rb_buffer buffer = {0};

    for (int i = 0; i < 1000; i++)
        rb_buffer_format(&buffer, "%d,", i % 10);
    assert_int_equal(buffer.size, 2000);
    assert_int_equal(strlen(buffer.data), 2000);
    assert_memory_equal(buffer.data + 1990, "5,6,7,8,9,", 10);
    rb_buffer_done(&buffer);
    assert_null(buffer.data);
}

static void drops_from_the_front(void **state)
{
    struct rb_buffer buffer = {0};

    rb_buffer_add(&buffer, "abc\0def", 7);
    rb_buffer_drop(&buffer, 4);
    assert_string_equal(buffer.data, "def");
    rb_buffer_drop(&buffer, 100);
    assert_int_equal(buffer.size, 0);
    assert_string_equal(buffer.data, "");
    rb_buffer_done(&buffer);
}

static void hands_on_its_text(void **state)
{
    struct rb_buffer buffer = {0};
    char *empty = rb_buffer_take(&buffer), *text;

    assert_string_equal(empty, "");
    rb_buffer_text(&buffer, "text");
    text = rb_buffer_take(&buffer);
    assert_string_equal(text, "text");
    assert_null(buffer.data);
    free(empty);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows),
        cmocka_unit_test(drops_from_the_front),
        cmocka_unit_test(hands_on_its_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
