/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's environment: here the worker is a script that writes it to its log.  And the message
 * where a worker cannot be adopted. */
#include "base/arena.h"
#include "daemon/agent/spawn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/rubato-spawn-XXXXXX";

static char *in_folder(const char *name)
{
    return rb_format("%s/%s", folder, name);
}

static void on_ended(const char *how, void *context)
{
    assert_string_equal(how, "status 0");
    *(bool *)context = true;
}

/* What the script wrote. */
static void spawn(const char *kind, char *ret_line, int size)
{
    RB_CLEANUP(rb_freep) char *program = in_folder("worker");
    RB_CLEANUP(rb_freep) char *log = in_folder("log");
    struct rb_spawn how = {program, "job", "w-7", kind, folder, "127.0.0.1", log, 0, -1};
    struct rb_process *process;
    struct rb_why why;
    bool ended = false;
    uv_loop_t loop;
    FILE *file;

    (void)unlink(log);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(rb_process_spawn(&loop, &how, on_ended, &ended, &process, &why), 0);
    while (!ended)
        uv_run(&loop, UV_RUN_ONCE);
    rb_process_release(process);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    file = fopen(log, "r");
    assert_non_null(file);
    assert_non_null(fgets(ret_line, size, file));
    fclose(file);
}

/* Each rank that shares a GPU is a host of its own to NCCL; no other rank is given a name. */
static void sharers_name_their_host(void **state)
{
    char line[128];

    (void)state;
    setenv("OMP_NUM_THREADS", "9", 1);
    unsetenv("NCCL_HOSTID");
    unsetenv("RUBATO_GPU_SHARES");
    spawn("cuda", line, sizeof line);
    assert_string_equal(line, "1 \n");
    setenv("RUBATO_GPU_SHARES", "2", 1);
    spawn("cuda", line, sizeof line);
    assert_string_equal(line, "1 rubato-w-7\n");
    spawn("cpu", line, sizeof line);
    assert_string_equal(line, "1 \n");
    setenv("NCCL_HOSTID", "mine", 1);
    spawn("cuda", line, sizeof line);
    assert_string_equal(line, "1 mine\n");
}

/* A process for which there is no descriptor to follow it may live; a process that is not there
 * does not. */
static void who_is_gone_is_told_from_who_cannot_be_followed(void **state)
{
    struct rlimit limit, none;
    struct rb_process *process;
    struct rb_why why;
    uv_loop_t loop;
    pid_t gone = fork();

    (void)state;
    if (gone == 0)
        _exit(0);
    assert_int_equal(waitpid(gone, NULL, 0), gone);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(rb_process_adopt(&loop, gone, NULL, NULL, &process, &why), RB_ENOTFOUND);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){0, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    assert_int_equal(rb_process_adopt(&loop, getpid(), NULL, NULL, &process, &why), RB_EIO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_non_null(strstr(why.text, "Too many open files"));
    assert_int_equal(uv_loop_close(&loop), 0);
}

static int make_script(void **state)
{
    RB_CLEANUP(rb_freep) char *program = mkdtemp(folder) ? in_folder("worker") : NULL;
    FILE *file = program ? fopen(program, "w") : NULL;

    (void)state;
    if (!file)
        return -1;
    fputs("#!/bin/sh\necho \"$OMP_NUM_THREADS $NCCL_HOSTID\"\n", file);
    fclose(file);
    return chmod(program, 0700);
}

static int remove_script(void **state)
{
    RB_CLEANUP(rb_freep) char *program = in_folder("worker");
    RB_CLEANUP(rb_freep) char *log = in_folder("log");

    (void)state;
    return unlink(program) + unlink(log) + rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharers_name_their_host),
        cmocka_unit_test(who_is_gone_is_told_from_who_cannot_be_followed)};

    return cmocka_run_group_tests(tests, make_script, remove_script);
}
