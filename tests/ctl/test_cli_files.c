/* SPDX-License-Identifier: Apache-2.0 */
/* Files that rubatoctl writes: whole or not at all, and the files that were there before. */
#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include "tests/ctl/cli.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_export(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "export", .data = "eight by", .body = "{\"step\":9,\"bytes\":8}"},
        {.method = "export", .data = "eight", .body = "{\"step\":9,\"bytes\":8}"},
        {.method = "export", .data = "eight", .error = RB_EREFUSED, .why = "no step yet"},
        {.method = "status", .data = "surprise"},
        {0},
    };
    struct rb_buffer file = {0};
    struct fake fake;
    char path[100];

    (void)state;
    fake_start(&fake, replies);
    snprintf(path, sizeof path, "%s/m", fake.folder);
    cli_expect(&fake, 0, "m: step 9 of gpt, 8 B\n", "", WORDS("export", "gpt", "--out", "m"));
    assert_int_equal(rb_file_read(path, 100, &file, NULL), 0);
    assert_string_equal(file.data, "eight by");
    cli_expect(&fake, 1, "", "5 bytes came of 8", WORDS("export", "gpt", "--out", "m"));
    cli_expect(&fake, 4, "", "no step yet", WORDS("export", "gpt", "--out", "m"));
    rb_buffer_clear(&file);
    assert_int_equal(rb_file_read(path, 100, &file, NULL), 0); /* the old one is whole */
    assert_string_equal(file.data, "eight by");
    cli_expect(&fake, 5, "", "data where none", WORDS("status", "gpt"));
    rb_buffer_done(&file);
    fake_stop(&fake);
}

/* A name that is no regular file stays what it is, and a regular file keeps its mode. */
static void test_output(void **state)
{
    static const struct fake_reply replies[] = {
        {.method = "export", .data = "eight by", .body = "{\"step\":9,\"bytes\":8}"}, {0}};
    struct rb_buffer file = {0};
    struct stat status;
    struct fake fake;
    char path[100];

    (void)state;
    fake_start(&fake, replies);
    cli_put(&fake, "kept", "old");
    snprintf(path, sizeof path, "%s/kept", fake.folder);
    assert_int_equal(chmod(path, 0600), 0);
    snprintf(path, sizeof path, "%s/link", fake.folder);
    assert_int_equal(symlink("kept", path), 0);
    cli_expect(&fake, 0, "link: step 9 of gpt", "", WORDS("export", "gpt", "--out", "link"));
    assert_int_equal(rb_file_read(path, 100, &file, NULL), 0);
    assert_string_equal(file.data, "eight by");
    assert_int_equal(lstat(path, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0600);
    cli_expect(&fake, 0, "null: step 9 of gpt", "", WORDS("export", "gpt", "--out", "/dev/null"));
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    cli_expect(&fake, 0, "eight by", "stdout: step 9 of gpt", WORDS("export", "gpt", "--out", "-"));
    cli_expect(&fake, 2, "", "names a folder",
               WORDS("model", "run", "m.onnx", "--input", "x.npy", "--out", "-"));
    cli_expect(&fake, 3, "", "cannot create nowhere/m: No such file or directory",
               WORDS("export", "gpt", "--out", "nowhere/m"));
    cli_expect(&fake, 3, "", "cannot create nowhere/m: No such file or directory",
               WORDS("model", "new", "gpt", "--out", "nowhere/m"));
    rb_buffer_done(&file);
    fake_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_export),
        cmocka_unit_test(test_output),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
