/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint folders: the newest whole one is found; one of another job is refused, and so are
 * folders with none whole. */
#include "daemon/rpc/resume.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/digested.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

/* The new job, as far as checkpoints know of it. */
static Rb__Model ours;

static void put_model(Rb__Model *model, const char *spec_digest, const char *settings,
                      const char *numeric_class)
{
    rb__model__init(model);
    model->spec_digest = (char *)spec_digest;
    model->settings = (char *)settings;
    model->numeric_class = (char *)numeric_class;
    model->seed = 2;
    model->global_batch = 8;
    model->steps = 1 << 20;
}

static int begin(void **unused)
{
    (void)unused;
    snprintf(root, sizeof(root), "/tmp/rubato-resume-XXXXXX");
    put_model(&ours, "aa", NULL, "c");
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

    assert_int_equal(rb_file_make_folder(path, RB_FOLDER_SHARED, NULL), 0);
    if (manifest)
        assert_int_equal(rb_file_write(file, manifest, strlen(manifest), NULL), 0);
}

/* more: further entries of the list; taken. */
static void put_with(const char *folder, const char *spec_digest, json_t *more)
{
    RB_CLEANUP(rb_freep) char *weights = rb_format("%s/%s/model.safetensors", root, folder);
    RB_CLEANUP(rb_freep) char *text = NULL;
    char digest[33];
    json_t *manifest;

    rb_hash_digest("weights", 7, digest);
    manifest = json_pack("{s:s,s:s,s:{s:{s:i,s:s}}}", "specDigest", spec_digest, "numericClass",
                         "c", "files", "model.safetensors", "bytes", 7, "digest", digest);
    json_object_update(manifest, more);
    json_decref(more);
    text = rb_digested_text(manifest);
    put(folder, text);
    assert_int_equal(rb_file_write(weights, "weights", 7, NULL), 0);
    json_decref(manifest);
}

static void put_whole(const char *folder, const char *spec_digest)
{
    put_with(folder, spec_digest, NULL);
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
    assert_int_equal(rb_resume_find(none, &ours, false, &folder, &step, &notes, NULL), 0);
    assert_null(folder);
    assert_int_equal(step, 0);
    put("step-12", NULL); /* cut off before it was whole */
    put("other", "{}");
    put("step-x", "{}");
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, NULL), 0);
    assert_null(folder);
    assert_int_equal(notes.size, 0);
}

/* Root may write everywhere, so this does not try to write.  A folder that is not there yet is made
 * in the one above it. */
static void where_nothing_can_be_written(void **unused)
{
    enum { NOBODY = 65534 };
    RB_CLEANUP(rb_freep) char *open = rb_format("%s/open", root);
    RB_CLEANUP(rb_freep) char *closed = rb_format("%s/closed/by/far", root);
    RB_CLEANUP(rb_freep) char *above = rb_format("%s/closed", root);
    struct rb_buffer notes = {0};
    char *folder;
    int64_t step;
    bool root_runs = getuid() == 0;

    (void)unused;
    assert_int_equal(chmod(root, 0755), 0);
    assert_int_equal(mkdir(open, 0777) || chmod(open, 0777), 0);
    assert_int_equal(mkdir(above, 0555), 0);
    if (root_runs)
        assert_int_equal(setresuid(NOBODY, NOBODY, 0), 0);
    assert_int_equal(rb_resume_find(open, &ours, false, &folder, &step, &notes, NULL), 0);
    assert_int_equal(notes.size, 0);
    assert_int_equal(rb_resume_find(closed, &ours, false, &folder, &step, &notes, NULL), 0);
    if (root_runs)
        assert_int_equal(setresuid(0, 0, 0), 0);
    assert_non_null(strstr(notes.data, "/closed cannot be written on the node that coordinates"));
    rb_buffer_done(&notes);
}

/* The folder where workers, which are told the same path, write: also behind a name that is not
 * there. */
static void the_folder_that_a_path_means(void **unused)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/none/../kept", root);
    RB_CLEANUP(rb_freep) char *expected = rb_format("%s/kept/step-00000030", root);
    RB_CLEANUP(rb_freep) char *folder = NULL;
    struct rb_buffer notes = {0};
    int64_t step;

    (void)unused;
    put_whole("kept/step-00000030", "aa");
    assert_int_equal(rb_resume_find(path, &ours, false, &folder, &step, &notes, NULL), 0);
    assert_int_equal(step, 30);
    assert_string_equal(folder, expected);
}

static void one_without_its_list_is_damaged(void **unused)
{
    RB_CLEANUP(rb_freep) char *folder = NULL;
    struct rb_buffer notes = {0};
    struct rb_why why;
    int64_t step;

    (void)unused;
    put("step-00000150", NULL);
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "step-00000150 cannot be loaded"));
    put_whole("step-00000100", "aa");
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), 0);
    assert_int_equal(step, 100);
    assert_non_null(strstr(notes.data, "step-00000150 cannot be loaded"));
    rb_buffer_done(&notes);
}

/* A folder that cannot be reached is there all the same: nobody waits until it is gone. */
static void a_link_to_nowhere_is_damaged(void **unused)
{
    RB_CLEANUP(rb_freep) char *link = rb_format("%s/step-00000150", root);
    RB_CLEANUP(rb_freep) char *folder = NULL;
    struct rb_buffer notes = {0};
    struct rb_why why;
    int64_t step;

    (void)unused;
    assert_int_equal(symlink("nowhere", link), 0);
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "step-00000150 cannot be loaded"));
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
        assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, NULL), 0);
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
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, root));
    assert_non_null(strstr(why.text, "step-00000040 cannot be loaded (model.safetensors is not"));
    assert_non_null(strstr(why.text, "to start anew"));
    assert_null(folder);
}

static void one_behind_the_end_is_refused(void **unused)
{
    struct rb_buffer notes = {0};
    struct rb_why why = {{0}};
    char *folder = NULL;
    int64_t step;

    (void)unused;
    put_whole("step-00000100", "aa");
    ours.steps = 100;
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), 0);
    free(RB_TAKE(folder));
    ours.steps = 99;
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "step-00000100 is beyond the last step of this job, 99"));
    assert_null(folder);
}

static void another_job_is_refused(void **unused)
{
    struct rb_buffer notes = {0};
    struct rb_why why;
    char *folder = NULL;
    Rb__Model elsewhere;
    int64_t step;

    (void)unused;
    put_model(&elsewhere, "bb", NULL, "d");
    put_whole("step-1", "bb");
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, root));
    assert_non_null(strstr(why.text, "another folder"));
    assert_int_equal(rb_resume_find(root, &elsewhere, false, &folder, &step, &notes, &why),
                     RB_EREFUSED);
    assert_non_null(strstr(why.text, "numeric class"));
    assert_non_null(strstr(why.text, "spec.checkpoint.numericClass=any"));
    assert_null(folder);
    assert_int_equal(rb_resume_find(root, &ours, true, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_int_equal(rb_resume_find(root, &elsewhere, true, &folder, &step, &notes, &why), 0);
    assert_int_equal(step, 1);
    assert_non_null(strstr(notes.data, "step-1 was written by devices of numeric class c: what "
                                       "follows is as those here make it, d\n"));
    rb_buffer_done(&notes);
    free(folder);
}

/* Each case: what is replaced in the settings of here, by what, and what is said of the
 * difference. */
static void what_differs_is_said(void **unused)
{
    static const char here[] =
        "{\"data\":{\"content\":\"1\",\"path\":\"/a\",\"samples\":9,\"seqLen\":8,\"targets\":null},"
        "\"model\":{\"freeze\":[],\"onnx\":\"1\",\"weights\":\"1\"},"
        "\"train\":{\"lr\":0.001,\"optimizer\":0,\"schedule\":0,\"seed\":\"2\"}}";
    static const char *const cases[][3] = {
        {"\"seed\":\"2\"", "\"seed\":\"1\"", "train.seed is 1 there and 2 here)"},
        {"\"model\":", "\"cut\":\"layers\",\"model\":",
         "parallel.cut is layers there and words here)"},
        {"\"lr\":0.001", "\"lr\":0.25", "train.optimizer.lr is 0.25 there and 0.001 here)"},
        {"\"onnx\":\"1\",\"weights\":\"1\"", "\"onnx\":\"2\",\"weights\":\"2\"",
         ": the model (model.onnx) is another)"},
        {"\"weights\":\"1\"", "\"weights\":\"2\"", ": the weights to start from are others)"},
        {"\"content\":\"1\"", "\"content\":\"2\"", ": the data hold something else)"},
        {"\"seqLen\":8", "\"seqLen\":4", "data.train.seqLen is 4 there and 8 here)"},
        {"\"targets\":null", "\"targets\":\"/t\"",
         "data.train.targets is /t there and unset here)"},
        {"\"path\":\"/a\"", /* cut between characters */
         "\"path\":\"/abc\u00fc/1234567890123456789012345678901234567890/b.txt\"",
         "data.train.path is .../1234567890123456789012345678901234567890/b.txt there and /a here"},
        {"\"freeze\":[]", "\"freeze\":[\"a*\"]", "model.freeze is [\"a*\"] there and [] here)"},
        {"\"optimizer\":0", "\"optimizer\":1", "train.optimizer.type is "},
        {"\"schedule\":0", "\"schedule\":2,\"steps\":7", "train.schedule.type is "},
    };

    (void)unused;
    ours.settings = (char *)here;
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        const char *at = strstr(here, cases[i][0]);
        RB_CLEANUP(rb_freep) char *there = NULL;
        struct rb_buffer notes = {0};
        struct rb_why why = {{0}};
        char *folder = NULL;
        int64_t step;

        assert_non_null(at);
        there =
            rb_format("%.*s%s%s", (int)(at - here), here, cases[i][1], at + strlen(cases[i][0]));
        put_with("step-1", "bb", json_pack("{s:s}", "settings", there));
        assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why),
                         RB_EREFUSED);
        if (!strstr(why.text, cases[i][2]))
            fail_msg("'%s' is not in: %s", cases[i][2], why.text);
        assert_non_null(strstr(why.text, "name another folder, or remove them"));
        assert_null(strstr(why.text, "steps"));
    }
}

/* A checkpoint as a release wrote it that kept no settings. */
static void what_can_be_told_without_settings(void **unused)
{
    struct rb_buffer notes = {0};
    struct rb_why why = {{0}};
    char *folder = NULL;
    int64_t step;

    (void)unused;
    put_with("step-1", "bb", json_pack("{s:i,s:i,s:i}", "seed", 1, "step", 10, "samples", 320));
    assert_int_equal(rb_resume_find(root, &ours, false, &folder, &step, &notes, &why), RB_EREFUSED);
    assert_non_null(strstr(why.text, "train.seed is 1 there and 2 here, train.globalBatch is 32 "
                                     "there and 8 here"));
}

static void take_away(int step)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/step-%08d", root, step);
    RB_CLEANUP(rb_freep) char *aside = rb_format("%s/.tmp-removed", root);

    assert_int_equal(rename(path, aside), 0);
    assert_int_equal(rb_file_remove(aside, NULL), 0);
}

static void *save_and_remove(void *ended)
{
    RB_CLEANUP(rb_freep) char *half_done = rb_format("%s/.tmp-new", root);

    for (int step = 2; step < 150; step++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/step-%08d", root, step);

        put_whole(".tmp-new", "aa");
        assert_int_equal(rename(half_done, path), 0);
        take_away(step - 1);
    }
    atomic_store((atomic_bool *)ended, true);
    return NULL;
}

/* A job still saves there and keeps only the newest: nothing is damaged, nor begun anew. */
static void removed_while_it_is_looked_at(void **unused)
{
    struct rb_buffer notes = {0};
    struct rb_why why = {{0}};
    atomic_bool ended = false;
    pthread_t thread;

    (void)unused;
    put_whole("step-00000001", "aa");
    assert_int_equal(pthread_create(&thread, NULL, save_and_remove, &ended), 0);
    while (!atomic_load(&ended)) {
        RB_CLEANUP(rb_freep) char *folder = NULL;
        int64_t step = 0;
        int err = rb_resume_find(root, &ours, false, &folder, &step, &notes, &why);

        if (err)
            fail_msg("%s", why.text);
        assert_int_equal(notes.size, 0);
        assert_true(step > 0);
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_to_go_on_from, begin, end),
        cmocka_unit_test_setup_teardown(where_nothing_can_be_written, begin, end),
        cmocka_unit_test_setup_teardown(the_folder_that_a_path_means, begin, end),
        cmocka_unit_test_setup_teardown(one_without_its_list_is_damaged, begin, end),
        cmocka_unit_test_setup_teardown(a_link_to_nowhere_is_damaged, begin, end),
        cmocka_unit_test_setup_teardown(the_newest_whole_one, begin, end),
        cmocka_unit_test_setup_teardown(nothing_is_whole, begin, end),
        cmocka_unit_test_setup_teardown(one_behind_the_end_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(another_job_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(what_differs_is_said, begin, end),
        cmocka_unit_test_setup_teardown(what_can_be_told_without_settings, begin, end),
        cmocka_unit_test_setup_teardown(removed_while_it_is_looked_at, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
