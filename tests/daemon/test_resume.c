/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint folders: the newest whole one is found; another job's, or none whole, is refused. */
#include "daemon/rpc/resume.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/digested.h"

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

static void put_whole(const char *folder, const char *spec_digest)
{
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/%s/model.safetensors", root, folder);
    RB_CLEANUP(rb_freep) char *text = NULL;
    char digest[33];
    json_t *manifest;

    rb_hash_digest("weights", 7, digest);
    manifest = json_pack("{s:s,s:s,s:{s:{s:i,s:s}}}", "specDigest", spec_digest, "numericClass",
                         "c", "files", "model.safetensors", "bytes", 7, "digest", digest);
    text = rb_digested_text(manifest);
    put(folder, text);
    assert_int_equal(rb_file_write(weights, "weights", 7, NULL), 0);
    json_decref(manifest);
}

static void damage(const char *folder, const char *name)
{
    RB_CLEANUP(rb_freep) char *file = rb_format("%s/%s/%s", root, folder, name);
    struct rb_buffer bytes = {0};

    assert_int_equal(rb_file_read(file, 1 << 20, &bytes, NULL), 0);
    bytes.data[bytes.size / 2] ^= 1;
    assert_int_equal(rb_file_write(file, bytes.data, bytes.size, NULL), 0);
    rb_buffer_done(&bytes);
}

static void nothing_to_go_on_from(void **unused)
{
    RB_CLEANUP(rb_freep) char *none = rb_format("%s/none", root);
    struct rb_buffer notes = {0};
    char *folder = root;
    int64_t step = 7;

    (void)unused;
    assert_int_equal(rb_resume_find(none, "aa", "c", &folder, &step, &notes, NULL), 0);
    assert_null(folder);
    assert_int_equal(step, 0);
    put("step-12", NULL); /* cut off before it was whole */
    put("other", "{}");
    put("step-x", "{}");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &notes, NULL), 0);
    assert_null(folder);
    assert_int_equal(notes.size, 0);
}

static void one_without_its_list_is_damaged(void **unused)
{
    RB_CLEANUP(rb_freep) char *folder = NULL;
    struct rb_buffer notes = {0};
    struct rb_why why;
    int64_t step;

    (void)unused;
    put("step-00000150", NULL);
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "step-00000150 cannot be loaded"));
    put_whole("step-00000100", "aa");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &notes, &why), 0);
    assert_int_equal(step, 100);
    assert_non_null(strstr(notes.data, "step-00000150 cannot be loaded"));
    rb_buffer_done(&notes);
}

static void the_newest_whole_one(void **unused)
{
    static const char *const files[] = {"state.json", "model.safetensors"};
    struct rb_buffer notes = {0};
    int64_t step;

    (void)unused;
    put_whole("step-00000020", "aa");
    put_whole("step-00000100", "aa");
    for (size_t i = 0; i < RB_COUNT(files); i++) {
        RB_CLEANUP(rb_freep) char *folder = NULL;

        put_whole("step-00000120", "aa");
        damage("step-00000120", files[i]);
        rb_buffer_done(&notes);
        assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &notes, NULL), 0);
        assert_int_equal(step, 100);
        assert_string_equal(strrchr(folder, '/'), "/step-00000100");
        assert_non_null(strstr(notes.data, "step-00000120 cannot be loaded"));
        assert_non_null(strstr(notes.data, files[i]));
        assert_non_null(strstr(notes.data, "goes on from step-00000100\n"));
    }
    rb_buffer_done(&notes);
}

static void nothing_is_whole(void **unused)
{
    struct rb_buffer notes = {0};
    struct rb_why why = {{0}};
    char *folder = NULL;
    int64_t step;

    (void)unused;
    put_whole("step-00000020", "aa");
    put_whole("step-00000040", "aa");
    damage("step-00000020", "state.json");
    damage("step-00000040", "model.safetensors");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, root));
    assert_non_null(strstr(why.text, "step-00000040 cannot be loaded (model.safetensors is not"));
    assert_non_null(strstr(why.text, "to start anew"));
    assert_null(folder);
}

static void another_job_is_refused(void **unused)
{
    struct rb_buffer notes = {0};
    struct rb_why why;
    char *folder = NULL;
    int64_t step;

    (void)unused;
    put_whole("step-1", "bb");
    assert_int_equal(rb_resume_find(root, "aa", "c", &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, root));
    assert_non_null(strstr(why.text, "another folder"));
    assert_int_equal(rb_resume_find(root, "bb", "d", &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "numeric class"));
    assert_null(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_to_go_on_from, begin, end),
        cmocka_unit_test_setup_teardown(one_without_its_list_is_damaged, begin, end),
        cmocka_unit_test_setup_teardown(the_newest_whole_one, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_whole, begin, end),
        cmocka_unit_test_setup_teardown(another_job_is_refused, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
