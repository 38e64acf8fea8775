/* SPDX-License-Identifier: Apache-2.0 */
/* The command that is asked about notices: real programs, well and badly behaved. */
#include "daemon/agent/notice_command.h"
#include "base/arena.h"
#include "base/file.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct world {
    uv_loop_t loop;
    char folder[64];
    int status, told;
    char output[RB_NOTICE_OUTPUT + 1];
    struct rb_notice_command *command;
};

static int setup(void **state)
{
    static struct world world;
    world = (struct world){.folder = "/tmp/rubato-notice.XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    uv_loop_init(&world.loop);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    struct rb_why why;
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&world->loop), 0); /* nothing is left open */
    rb_file_remove(world->folder, &why);
    return 0;
}

static void done(int status, const char *output, void *context)
{
    struct world *world = context;
    world->told++;
    world->status = status;
    strcpy(world->output, output);
}

static void begin(struct world *world, const char *script, const char *arguments,
                  uint64_t timeout_ms)
{
    struct rb_why why = {0};
    char *path = rb_format("%s/script", world->folder);
    char *text = rb_format("#!/bin/sh\n%s\n", script);
    char *line = rb_format("%s %s", path, arguments);
    assert_int_equal(rb_file_write(path, text, strlen(text), &why), RB_OK);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(
        rb_notice_command_run(&world->loop, line, timeout_ms, done, world, &world->command, &why),
        RB_OK);
    free(path);
    free(text);
    free(line);
}

static void run(struct world *world, const char *script, const char *arguments, uint64_t timeout_ms)
{
    world->told = 0;
    begin(world, script, arguments, timeout_ms);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_int_equal(world->told, 1);
}

static void what_it_says_is_told(void **state)
{
    struct world *world = *state;
    run(world, "echo 120", "", 10000);
    assert_int_equal(world->status, 0);
    assert_string_equal(world->output, "120\n");
    run(world, "exit 3", "", 10000);
    assert_int_equal(world->status, 3);
    assert_string_equal(world->output, "");
}

/* No character of the command means anything to a shell. */
static void words_are_split_at_blanks(void **state)
{
    struct world *world = *state;
    run(world, "echo $#:$1:$2", "  $HOME   a;b>c ", 10000);
    assert_string_equal(world->output, "2:$HOME:a;b>c\n");
}

static void endless_output_is_cut_off(void **state)
{
    struct world *world = *state;
    run(world, "head -c 300000 /dev/zero | tr '\\0' 7", "", 10000);
    assert_int_equal(world->status, 0);
    assert_int_equal(strlen(world->output), RB_NOTICE_OUTPUT);
}

static void one_that_does_not_end_is_killed(void **state)
{
    struct world *world = *state;
    uint64_t begun = uv_hrtime();
    run(world, "echo 5; sleep 60", "", 200);
    assert_int_equal(world->status, -1);
    assert_true(uv_hrtime() - begun < 30000000000u);
}

/* The command has ended; a process that it left behind with its output open is killed and not
 * waited for. */
static void nothing_is_left_behind(void **state)
{
    struct world *world = *state;
    char pid[32] = "";
    run(world, "sleep 60 & echo $!", "", 30000);
    assert_int_equal(world->status, 0);
    memcpy(pid, world->output, sizeof(pid) - 1);
    for (int i = 0; i < 500 && !kill((pid_t)atol(pid), 0); i++) {
        char path[64], line[256] = "";
        snprintf(path, sizeof(path), "/proc/%ld/stat", atol(pid));
        FILE *file = fopen(path, "r");
        if (file && fgets(line, sizeof(line), file) && strstr(line, ") Z"))
            line[0] = 0; /* dead, and nobody here reaps it */
        if (file)
            fclose(file);
        if (!line[0])
            return;
        usleep(10000);
    }
    assert_int_equal(kill((pid_t)atol(pid), 0), -1);
}

static void a_stopped_run_tells_nothing(void **state)
{
    struct world *world = *state;
    begin(world, "sleep 60", "", 30000);
    rb_notice_command_stop(world->command);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_int_equal(world->told, 0);
}

static void one_that_is_not_there(void **state)
{
    struct world *world = *state;
    struct rb_notice_command *command;
    struct rb_why why = {0};
    assert_int_not_equal(
        rb_notice_command_run(&world->loop, "/nowhere/at/all", 1000, done, world, &command, &why),
        RB_OK);
    assert_non_null(strstr(why.text, "/nowhere/at/all"));
    assert_int_not_equal(
        rb_notice_command_run(&world->loop, "  ", 1000, done, world, &command, &why), RB_OK);
}

static void numbers(void **state)
{
    static const char *const wrong[] = {"soon", "-1", "1e99", "12 s", "1 2", "inf", "<html>"};
    double seconds = 0;
    (void)state;
    assert_int_equal(rb_notice_command_read("", &seconds), RB_OK);
    assert_true(seconds == -1);
    assert_int_equal(rb_notice_command_read(" \n", &seconds), RB_OK);
    assert_true(seconds == -1);
    assert_int_equal(rb_notice_command_read("\t30.5\n\n", &seconds), RB_OK);
    assert_true(seconds == 30.5);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(rb_notice_command_read(wrong[i], &seconds), RB_EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_it_says_is_told),      TEST(words_are_split_at_blanks),
        TEST(endless_output_is_cut_off), TEST(one_that_does_not_end_is_killed),
        TEST(nothing_is_left_behind),    TEST(a_stopped_run_tells_nothing),
        TEST(one_that_is_not_there),     cmocka_unit_test(numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
