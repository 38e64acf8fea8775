/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/hello.h"

#include "base/arena.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static const struct rb_hello sample = {
    .configuration = 7,
    .rank = 3,
    .to = 1,
    .size = 300,
    .flags = RB_HELLO_SHARED,
    .dialect = 9,
    .job = "gpt",
    .digest = "0123456789abcdef0123456789abcdef",
    .worker = "node-a/0/17",
};

static void comes_back(void **state)
{
    struct rb_hello longest = sample, back;
    uint8_t bytes[RB_HELLO_MAX];
    size_t size = rb_hello_encode(&sample, bytes);

    (void)state;
    assert_int_equal(rb_hello_decode(bytes, size, &back, NULL), 0);
    assert_int_equal(back.configuration, 7);
    assert_int_equal(back.rank, 3);
    assert_int_equal(back.to, 1);
    assert_int_equal(back.size, 300);
    assert_int_equal(back.flags, RB_HELLO_SHARED);
    assert_int_equal(back.dialect, 9);
    assert_string_equal(back.job, sample.job);
    assert_string_equal(back.digest, sample.digest);
    assert_string_equal(back.worker, sample.worker);

    memset(longest.job, 'j', sizeof longest.job - 1);
    memset(longest.digest, 'd', sizeof longest.digest - 1);
    memset(longest.worker, 'w', sizeof longest.worker - 1);
    size = rb_hello_encode(&longest, bytes);
    assert_true(size <= sizeof bytes);
    assert_int_equal(rb_hello_decode(bytes, size, &back, NULL), 0);
    assert_string_equal(back.worker, longest.worker);
}

/* Every incomplete hello wants more; memory of exactly that size lets a sanitizer see a step too
 * far. */
static void beginnings_wait(void **state)
{
    uint8_t bytes[RB_HELLO_MAX];
    size_t size = rb_hello_encode(&sample, bytes);
    struct rb_hello back;

    (void)state;
    for (size_t i = 0; i < size; i++) {
        uint8_t *part = malloc(i ? i : 1);

        memcpy(part, bytes, i);
        assert_int_equal(rb_hello_decode(part, i, &back, NULL), RB_EAGAIN);
        free(part);
    }
    bytes[size] = 0;
    assert_int_equal(rb_hello_decode(bytes, size + 1, &back, NULL), RB_EINVAL);
}

static void nonsense_is_refused(void **state)
{
    uint8_t bytes[RB_HELLO_MAX], broken[RB_HELLO_MAX];
    size_t size = rb_hello_encode(&sample, bytes);
    struct rb_hello back;
    struct rb_why why = {{0}};

    (void)state;
    assert_int_equal(rb_hello_decode((const uint8_t *)"G", 1, &back, &why), RB_EINVAL);
    /* Sizes: in all, and of each text. */
    for (size_t at = 8; at < 12; at++) {
        memcpy(broken, bytes, size);
        broken[at] ^= 0x80;
        assert_true(rb_hello_decode(broken, size, &back, &why) < 0);
    }
    for (int wrong = 0; wrong < 256; wrong++) {
        memcpy(broken, bytes, size);
        broken[32] = (uint8_t)wrong;
        if (wrong != 3)
            assert_int_equal(rb_hello_decode(broken, size, &back, &why), RB_EINVAL);
    }
    memcpy(broken, bytes, size);
    broken[35] = '\0'; /* a NUL inside a text */
    assert_int_equal(rb_hello_decode(broken, size, &back, &why), RB_EINVAL);
}

static void welcomes(void **state)
{
    struct rb_welcome welcome = {.err = RB_EREFUSED, .shared = true, .text = "not you"}, back;
    uint8_t bytes[RB_WELCOME_SIZE];

    (void)state;
    rb_welcome_encode(&welcome, bytes);
    assert_int_equal(rb_welcome_decode(bytes, &back), 0);
    assert_int_equal(back.err, RB_EREFUSED);
    assert_true(back.shared);
    assert_string_equal(back.text, "not you");
    memset(bytes + 16, '\x1b', sizeof bytes - 16); /* no NUL, and what a terminal would obey */
    assert_int_equal(rb_welcome_decode(bytes, &back), 0);
    assert_int_equal(strlen(back.text), sizeof back.text - 1);
    assert_null(strchr(back.text, '\x1b'));
    bytes[11] = 0; /* an error above zero */
    assert_int_equal(rb_welcome_decode(bytes, &back), RB_EINVAL);
    bytes[0] = 'X';
    assert_int_equal(rb_welcome_decode(bytes, &back), RB_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back),
        cmocka_unit_test(beginnings_wait),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(welcomes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
