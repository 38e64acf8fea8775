/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint folders: the newest whole one is found, another job's is refused. */
#include "daemon/rpc/resume.h"

#include "base/arena.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char root[64];

static int begin(void **unused)
{
    (void)unused;
    snprintf(root, sizeof(root), "/tmp/rubato-resume-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **unused)
{
    (void)unused;
    return rb_file_remove(root, NULL);
}

static void put(const char *folder, const char *manifest)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", root, folder);
    RB_CLEANUP(rb_freep) char *file = rb_format("%s/state.json", path);

    assert_int_equal(rb_file_make_folder(path, NULL), 0);
    if (manifest)
        assert_int_equal(rb_file_write(file, manifest, strlen(manifest), NULL), 0);
}

static void nothing_to_go_on_from(void **unused)
{
    RB_CLEANUP(rb_freep) char *none = rb_format("%s/none", root);
    char *folder = root;
    int64_t step = 7;

    (void)unused;
    assert_int_equal(rb_resume_find(none, "aa", "c", &folder, &step, NULL), 0);
    assert_null(folder);
    assert_int_equal(step, 0);
    put("step-12", NULL); /* cut off before it was whole */
    put("other", "{}");
    put("step-x", "{}");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, NULL), 0);
    assert_null(folder);
}

static void the_newest_whole_one(void **unused)
{
    RB_CLEANUP(rb_freep) char *folder = NULL;
    int64_t step;

    (void)unused;
    put("step-00000020", "{\"specDigest\":\"aa\",\"numericClass\":\"c\"}");
    put("step-00000100", "{\"specDigest\":\"aa\",\"numericClass\":\"c\"}");
    put("step-00000120", "{\"specDigest\":");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, NULL), 0);
    assert_int_equal(step, 100);
    assert_string_equal(strrchr(folder, '/'), "/step-00000100");
}

static void another_job_is_refused(void **unused)
{
    struct rb_why why;
    char *folder = NULL;
    int64_t step;

    (void)unused;
    put("step-1", "{\"specDigest\":\"bb\",\"numericClass\":\"c\"}");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, root));
    assert_non_null(strstr(why.text, "another folder"));
    assert_int_equal(rb_resume_find(root, "bb", "d", &folder, &step, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "numeric class"));
    assert_null(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_to_go_on_from, begin, end),
        cmocka_unit_test_setup_teardown(the_newest_whole_one, begin, end),
        cmocka_unit_test_setup_teardown(another_job_is_refused, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
