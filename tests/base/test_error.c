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

/* What does not fit is cut off at the end; the newest clause stays. */
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
        cmocka_unit_test(errno_has_a_code),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
