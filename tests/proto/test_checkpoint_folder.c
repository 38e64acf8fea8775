/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/checkpoint_folder.h"

#include "base/arena.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static void test_names(void **state)
{
    static const int64_t steps[] = {0, 1, 1200, 99999999, 100000000, INT64_MAX};
    static const char *const others[] = {"",
                                         "step-",
                                         "step-1200",
                                         "step-00001200/",
                                         "step--0000001",
                                         "step-+0000001",
                                         "step-1e3",
                                         ".step-00001200",
                                         "step-000012",
                                         "step-0000001200",
                                         "step-99999999999999999999"};

    (void)state;
    for (size_t i = 0; i < RB_COUNT(steps); i++) {
        RB_CLEANUP(rb_freep) char *name = rb_checkpoint_name(steps[i]);

        assert_int_equal(rb_checkpoint_step(name), steps[i]);
    }
    for (size_t i = 0; i < RB_COUNT(others); i++)
        assert_int_equal(rb_checkpoint_step(others[i]), -1);
}

static void test_latest(void **state)
{
    static const struct {
        const char *text;
        int64_t step;
    } lines[] = {{"step-00001200\n", 1200},
                 {"step-00001200", -1}, /* cut short */
                 {"step-00001200\nstep-00001300\n", -1},
                 {"\n", -1},
                 {"", -1}};
    char folder[] = "/tmp/rubato-latest-XXXXXX";
    RB_CLEANUP(rb_freep) char *path = NULL;

    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(rb_checkpoint_latest(folder), -1);
    path = rb_format("%s/" RB_CHECKPOINT_LATEST, folder);
    for (size_t i = 0; i < RB_COUNT(lines); i++) {
        assert_int_equal(rb_file_write(path, lines[i].text, strlen(lines[i].text), NULL), 0);
        assert_int_equal(rb_checkpoint_latest(folder), lines[i].step);
    }
    assert_int_equal(rb_file_remove(folder, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_latest)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
