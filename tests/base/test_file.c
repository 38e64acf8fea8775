/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int enter_folder(void **state)
{
    static char folder[] = "/tmp/rubato-base-XXXXXX";

    *state = mkdtemp(folder);
    return *state ? chdir(folder) : -1;
}

static int leave_folder(void **state)
{
    return chdir("/") || rb_file_remove(*state, NULL);
}

static bool is_folder(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static void written_and_read(void **state)
{
    struct rb_buffer text = {0};
    struct rb_why why = {0};

    assert_int_equal(rb_file_write("file", "new", 3, &why), 0);
    assert_int_equal(rb_file_read("file", 3, &text, &why), 0);
    assert_string_equal(text.data, "new");
    rb_buffer_clear(&text);
    assert_int_equal(rb_file_read("file", 2, &text, &why), RB_ELIMIT);
    assert_int_equal(rb_file_read("none", 2, &text, &why), RB_ENOTFOUND);
    assert_string_equal(why.text, "cannot open none: No such file or directory");
    rb_buffer_done(&text);
}

/* A write that fails leaves the old file as it was, and nothing beside it. */
static void a_failed_write_leaves_nothing(void **state)
{
    struct rb_why why = {0};

    assert_int_equal(mkdir("busy", 0700), 0);
    assert_int_equal(mkdir("busy/inside", 0700), 0);
    assert_int_not_equal(rb_file_write("busy", "x", 1, &why), 0);
    assert_non_null(strstr(why.text, "busy"));
    assert_true(is_folder("busy/inside"));
    assert_int_equal(rb_file_remove("busy", &why), 0);
    assert_false(is_folder("busy"));
    assert_int_equal(rb_file_remove("busy", &why), 0);
}

static void folders(void **state)
{
    RB_CLEANUP(rb_freep) char *whole = rb_format("%s/x/y", (const char *)*state);
    struct rb_why why = {0};
    struct stat status;

    umask(0027);
    assert_int_equal(rb_file_make_folder("own/inside", RB_FOLDER_OWN, &why), 0);
    assert_true(!stat("own", &status) && (status.st_mode & 0777) == 0700);
    assert_int_equal(rb_file_make_folder("a/b//c/", RB_FOLDER_SHARED, &why), 0);
    assert_true(is_folder("a/b/c"));
    assert_true(!stat("a/b", &status) && (status.st_mode & 0777) == 0750);
    assert_int_equal(rb_file_make_folder("a/b/c", RB_FOLDER_SHARED, &why), 0);
    assert_int_equal(rb_file_make_folder(whole, RB_FOLDER_SHARED, &why), 0);
    assert_true(is_folder("x/y"));
    assert_int_equal(rb_file_make_folder("/", RB_FOLDER_SHARED, &why), 0);
    assert_int_equal(rb_file_make_folder("", RB_FOLDER_SHARED, &why), RB_ENOTFOUND);
    assert_int_equal(rb_file_write("a/file", "", 0, &why), 0);
    assert_int_equal(rb_file_make_folder("a/file", RB_FOLDER_SHARED, &why), RB_EEXISTS);
    assert_non_null(strstr(why.text, "a file is in its place"));
}

static void only_the_newest_are_kept(void **state)
{
    struct rb_why why = {0};
    char path[32];

    assert_int_equal(rb_file_make_folder("logs/folder", RB_FOLDER_SHARED, &why), 0);
    for (int i = 0; i < 100; i++) { /* 0 is the newest */
        struct timespec times[2] = {{.tv_sec = 1000 - i}, {.tv_sec = 1000 - i}};

        snprintf(path, sizeof path, "logs/%d", i);
        assert_int_equal(rb_file_write(path, "text", 4, &why), 0);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    assert_int_equal(rb_file_keep_newest("logs", 100, &why), 0);
    assert_int_equal(access("logs/99", F_OK), 0);
    assert_int_equal(rb_file_keep_newest("logs", 7, &why), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(path, sizeof path, "logs/%d", i);
        assert_int_equal(access(path, F_OK), i < 7 ? 0 : -1);
    }
    assert_true(is_folder("logs/folder"));
    assert_int_equal(rb_file_keep_newest("none", 7, &why), RB_ENOTFOUND);
}

static void what_begins_so_is_removed(void **state)
{
    static const char *const names[] = {"begun/.half-1", "begun/.half-2/file", "begun/half-3"};
    struct rb_why why;

    (void)state;
    assert_int_equal(rb_file_make_folder("begun/.half-2", RB_FOLDER_OWN, &why), 0);
    for (size_t i = 0; i < RB_COUNT(names); i++)
        assert_int_equal(rb_file_write(names[i], "x", 1, &why), 0);
    assert_int_equal(rb_file_remove_beginning("begun", ".half-", &why), 0);
    assert_int_equal(access("begun/.half-1", F_OK), -1);
    assert_int_equal(access("begun/.half-2", F_OK), -1);
    assert_int_equal(access("begun/half-3", F_OK), 0);
    assert_int_equal(rb_file_remove_beginning("none", ".half-", &why), 0);
}

static void maps(void **state)
{
    struct rb_map map;
    struct rb_why why = {0};

    assert_int_equal(rb_file_write("map", "four", 4, &why), 0);
    assert_int_equal(rb_map_open("map", &map, &why), 0);
    assert_int_equal(map.size, 4);
    assert_memory_equal(map.data, "four", 4);
    rb_map_close(&map);
    assert_int_equal(rb_file_write("map", "", 0, &why), 0);
    assert_int_equal(rb_map_open("map", &map, &why), 0);
    assert_null(map.data);
    rb_map_close(&map);
    assert_int_equal(rb_map_open(".", &map, &why), RB_EINVAL);
}

/* Two names of one folder give one path, whether the folder exists yet or not. */
static void links_are_followed(void **state)
{
    static const char *const names[][2] = {
        {"there", "there"},        {"link", "there"},          {"link/", "there"},
        {"link/new", "there/new"}, {"link/a/b/", "there/a/b"}, {"none/x", "none/x"},
        {"no/../there", "there"},  {"no/./../x/", "x"},        {"link/no/..", "there"},
    };

    assert_int_equal(mkdir("there", 0700), 0);
    assert_int_equal(symlink("there", "link"), 0);
    for (size_t i = 0; i < RB_COUNT(names); i++) {
        RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", (char *)*state, names[i][0]);
        RB_CLEANUP(rb_freep) char *expected = rb_format("%s/%s", (char *)*state, names[i][1]);
        RB_CLEANUP(rb_freep) char *real = rb_file_real(path);

        assert_string_equal(real, expected);
    }
    for (size_t i = 0; i < 2; i++) {
        RB_CLEANUP(rb_freep) char *real = rb_file_real(i ? "/" : "/none-such");

        assert_string_equal(real, i ? "/" : "/none-such");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(a_failed_write_leaves_nothing),
        cmocka_unit_test(folders),
        cmocka_unit_test(only_the_newest_are_kept),
        cmocka_unit_test(what_begins_so_is_removed),
        cmocka_unit_test(maps),
        cmocka_unit_test(links_are_followed),
    };

    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
