/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>

static void a_sentence_grows_in_front(void **state)
{
    struct rb_why why = {0};

    assert_int_equal(rb_why_set(&why, RB_EINVAL, "axis %d", 3), RB_EINVAL);
    assert_int_equal(rb_why_add(&why, RB_EINVAL, "node '%s'", "conv"), RB_EINVAL);
    assert_string_equal(why.text, "node 'conv': axis 3");
}

static void without_a_sentence_the_code_speaks(void **state)
{
    struct rb_why why = {0};

    rb_why_add(&why, RB_ENOTFOUND, "job");
    assert_string_equal(why.text, "job: not found");
    assert_int_equal(rb_why_add(NULL, RB_EPEER, "nobody listens"), RB_EPEER);
}

/* A sentence that is too long is cut off at the end; the newest clause stays. */
static void long_sentences_are_cut(void **state)
{
    struct rb_why why = {0};
    char longer[2 * sizeof why.text];

    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    rb_why_set(&why, RB_EINVAL, "%s", longer);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
    rb_why_add(&why, RB_EINVAL, "step 3");
    assert_memory_equal(why.text, "step 3: xxx", 11);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

/* Half a character is invalid JSON, and then no user could read the sentence. */
static void cut_at_whole_characters(void **state)
{
    static const struct {
        const char *text;
        int most, fit;
    } cases[] = {
        {"a\xc3\xbc", 1, 1},
        {"a\xc3\xbc", 2, 1},
        {"a\xc3\xbc", 3, 3},
        {"a\xc3\xbc", 9, 3},
        {"\xe2\x82\xac", 2, 0},
        {"x\xe2\x82\xac.", 4, 4},
        {"\xf0\x9f\x8e\xb5", 3, 0},
        {"\xf0\x9f\x8e\xb5", 4, 4},
        {"", 0, 0},
        {"ab", 0, 0},
    };
    struct rb_why why = {0};
    char longer[2 * sizeof why.text];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(rb_error_fit(cases[i].text, cases[i].most), cases[i].fit);
    for (size_t i = 0; i < sizeof longer; i++)
        longer[i] = i % 2 ? '\xbc' : '\xc3';
    longer[sizeof longer - 1] = '\0';
    rb_why_set(&why, RB_EINVAL, "%s", longer);
    assert_int_equal(strlen(why.text), sizeof why.text - 2);
    rb_why_add(&why, RB_EINVAL, "12"); /* "12: " and as much, two bytes at a time, as has room */
    assert_int_equal(strlen(why.text), sizeof why.text - 2);
    rb_why_add(&why, RB_EINVAL, "%s", longer);
    assert_int_equal(strlen(why.text), sizeof why.text - 2);
}

static void errno_has_a_code(void **state)
{
    assert_int_equal(rb_error_from_errno(0), RB_OK);
    assert_int_equal(rb_error_from_errno(ENOSPC), RB_EFULL);
    assert_int_equal(rb_error_from_errno(ENOTTY), RB_EIO);
    assert_string_equal(rb_error_text(-12345), "unknown error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sentence_grows_in_front),
        cmocka_unit_test(without_a_sentence_the_code_speaks),
        cmocka_unit_test(long_sentences_are_cut),
        cmocka_unit_test(cut_at_whole_characters),
        cmocka_unit_test(errno_has_a_code),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
