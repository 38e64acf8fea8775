/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint folder belongs to one job at a time, whatever name others know it by. */
#include "base/arena.h"
#include "base/file.h"
#include "daemon/rpc/submit_inside.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char root[64];

static int begin(void **unused)
{
    (void)unused;
    snprintf(root, sizeof root, "/tmp/rubato-folder-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **unused)
{
    (void)unused;
    return rb_file_remove(root, NULL);
}

/* A job's spec, as far as folders go: path in `root`, NULL: none. */
struct job {
    Rb__Spec spec;
    Rb__CheckpointSpec checkpoint;
    char path[128];
};

static const Rb__Spec *job_of(struct job *job, const char *path)
{
    rb__spec__init(&job->spec);
    rb__checkpoint_spec__init(&job->checkpoint);
    job->spec.checkpoint = &job->checkpoint;
    snprintf(job->path, sizeof job->path, "%s/%s", root, path ? path : "");
    job->checkpoint.path = path ? job->path : NULL;
    return &job->spec;
}

static void one_job_a_folder(void **state)
{
    static const struct {
        const char *path, *other;
        int err;
    } cases[] = {
        {"saved", "saved", RB_EREFUSED},
        {"saved", "link", RB_EREFUSED},
        {"link", "./saved/", RB_EREFUSED},
        {"none/../saved", "saved", RB_EREFUSED},
        {"none/a/../b", "none/b", RB_EREFUSED},
        {"saved", "saved/within", 0},
        {"saved", NULL, 0},
        {NULL, "saved", 0},
        {NULL, NULL, 0},
    };
    RB_CLEANUP(rb_freep) char *saved = rb_format("%s/saved", root);
    RB_CLEANUP(rb_freep) char *link = rb_format("%s/link", root);

    (void)state;
    assert_int_equal(rb_file_make_folder(saved, RB_FOLDER_SHARED, NULL), 0);
    assert_int_equal(symlink("saved", link), 0);
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        struct job mine, theirs, third;
        struct rb_submission job = {.spec = (Rb__Spec *)job_of(&mine, cases[i].path)};
        struct rb_why why = {0};

        rb_submission_claim(&job, job_of(&third, "elsewhere"), "third", "Paused");
        rb_submission_claim(&job, job_of(&theirs, cases[i].other), "theirs", "being submitted");
        assert_int_equal(rb_submission_alone(&job, &why), cases[i].err);
        if (cases[i].err && !strstr(why.text, "is where job theirs (being submitted) keeps"))
            fail_msg("%s", why.text);
        rb_submission_claims_done(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_job_a_folder)};

    return cmocka_run_group_tests(tests, begin, end);
}
