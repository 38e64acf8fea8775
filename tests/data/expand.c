/* SPDX-License-Identifier: Apache-2.0 */
/* Which files a path of a job file stands for. */
#include "data/expand.h"

#include "base/arena.h"
#include "base/file.h"
#include "tests/data/files.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void touch(struct files *f, const char *name)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", f->folder, name);
    RB_CLEANUP(rb_freep) char *folder = rb_string(path);

    *strrchr(folder, '/') = '\0';
    assert_int_equal(rb_file_make_folder(folder, RB_FOLDER_SHARED, NULL), 0);
    assert_int_equal(rb_file_write(path, "x", 1, NULL), 0);
}

/* Expand `paths` in the test's folder; the names come with a space behind each. */
static int expand(struct files *f, const char *const *paths, char **ret_names)
{
    char *whole[4] = {NULL};
    struct rb_expanded all = {0};
    size_t n = 0;
    int err;

    for (; paths[n]; n++)
        whole[n] = rb_format("%s%s%s", f->folder, *paths[n] ? "/" : "", paths[n]);
    err = rb_expand(whole, n, &all, &f->why);
    *ret_names = rb_string("");
    for (size_t i = 0; i < all.n; i++) {
        char *more = rb_format("%s%s ", *ret_names, all.path[i] + strlen(f->folder) + 1);

        free(*ret_names);
        *ret_names = more;
    }
    rb_expanded_done(&all);
    while (n-- > 0)
        free(whole[n]);
    return err;
}

static void what_paths_stand_for(void **state)
{
    static const struct {
        const char *paths[4];
        const char *names;
    } cases[] = {
        {{"b2"}, "b2 "},
        {{"b2", "a"}, "b2 a "}, /* in the order of the list */
        {{"b*"}, "b10 b2 "},
        {{"d/*", "a"}, "d/x d/y a "},
        {{"d"}, "d/x d/y "},
        {{"d/"}, "d/x d/y "},
        {{"none"}, "none "}, /* the open reports it */
        {{"odd[1]"}, "odd[1] "},
        {{"b[0-9]"}, "b2 "},
        {{NULL}, ""},
        {{"run\\[1]/*"}, "run[1]/odd[1] run[1]/z "},
        {{"run\\[1]/odd[1]"}, "run[1]/odd[1] "},
    };
    struct files *f = *state;

    touch(f, "a");
    touch(f, "b2");
    touch(f, "b10");
    touch(f, "odd[1]");
    touch(f, "run[1]/z");
    touch(f, "run[1]/odd[1]");
    touch(f, "d/y");
    touch(f, "d/x");
    touch(f, "d/.hidden");
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        RB_CLEANUP(rb_freep) char *names = NULL;

        assert_int_equal(expand(f, cases[i].paths, &names), 0);
        assert_string_equal(names, cases[i].names);
    }
}

static void what_stands_for_nothing(void **state)
{
    static const struct {
        const char *paths[4];
        const char *says;
    } cases[] = {
        {{"c*"}, "/c*; expected data"},
        {{"", "a"}, "has a folder in it, d: name the files"},
        {{"empty"}, "/empty is a folder without files"},
        {{"a", "b", "a"}, "/a is named twice"},
        {{"d", "d/x"}, "/d/x is named twice"},
        {{"none", "none"}, "/none is named twice"},
        {{"a", "b", "./a"}, "/a are the same file"},
        {{"a", "link"}, "/link are the same file"},
        {{"latin"}, "/latin/gr\xfcn is not UTF-8"},
    };
    struct files *f = *state;
    RB_CLEANUP(rb_freep) char *a = rb_format("%s/a", f->folder);
    RB_CLEANUP(rb_freep) char *link = rb_format("%s/link", f->folder);

    touch(f, "a");
    assert_int_equal(symlink(a, link), 0);
    touch(f, "b");
    touch(f, "d/x");
    touch(f, "empty/.hidden");
    touch(f, "latin/gr\xfcn");
    for (size_t i = 0; i < RB_COUNT(cases); i++) {
        RB_CLEANUP(rb_freep) char *names = NULL;

        assert_int_equal(expand(f, cases[i].paths, &names), RB_EINVAL);
        if (!strstr(f->why.text, cases[i].says))
            fail_msg("'%s' is not in: %s", cases[i].says, f->why.text);
    }
}

static void too_many_files(void **state)
{
    static const char *const all[] = {"many", NULL};
    struct files *f = *state;

    touch(f, "many/x");
    for (int i = 1; i <= RB_EXPAND_MOST; i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/many/%04d", f->folder, i);
        RB_CLEANUP(rb_freep) char *names = NULL;
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600); /* nobody waits for the disk */

        assert_return_code(fd, errno);
        close(fd);
        if (i >= RB_EXPAND_MOST - 1)
            assert_int_equal(expand(f, all, &names), i < RB_EXPAND_MOST ? 0 : RB_ELIMIT);
    }
    assert_non_null(strstr(f->why.text, "8193 files from "));
    assert_non_null(strstr(f->why.text, "expected at most 8192"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(what_paths_stand_for),
        FILES_TEST(what_stands_for_nothing),
        FILES_TEST(too_many_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
