/* SPDX-License-Identifier: Apache-2.0 */
/* A planner that lacks a job's blobs, and is asked at each decision: the log hears of it once. */
#include "daemon/planner.h"

#include "base/arena.h"
#include "base/hash.h"
#include "daemon/daemon.h"
#include "daemon/rpc/blobs.h"
#include "tests/daemon/server_scene.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DECISIONS = 5 };

static const char blob[] = "no model";

static struct asked {
    struct scene *scene;
    Rb__DaemonSettings settings;
    struct rb_daemon daemon;
    Rb__Job what;
    struct rb_job_facts job;
    char digest[33];
    int log, kept;
} asked;

static int setup(void **state)
{
    struct rb_why why = {0};

    if (scene_setup(state))
        return -1;
    asked = (struct asked){
        .scene = *state, .log = memfd_create("log", MFD_CLOEXEC), .kept = dup(STDERR_FILENO)};
    asked.settings.node = "a";
    asked.daemon.server = asked.scene->server;
    asked.daemon.settings = &asked.settings;
    if (rb_blobs_open(&asked.scene->until.loop, asked.scene->folder, &asked.daemon.blobs, &why))
        return -1;
    asked.daemon.planner = rb_planner_new(&asked.daemon);
    rb_hash_digest(blob, sizeof(blob), asked.digest);
    rb__job__init(&asked.what);
    asked.what.name = "gpt";
    asked.what.node = "b"; /* which is not there */
    asked.what.model = asked.what.profile = asked.digest;
    asked.job.job.message = &asked.what.base;
    asked.job.job.job = &asked.what;
    dup2(asked.log, STDERR_FILENO);
    return 0;
}

static int teardown(void **state)
{
    dup2(asked.kept, STDERR_FILENO);
    close(asked.kept);
    close(asked.log);
    rb_planner_free(asked.daemon.planner);
    rb_blobs_close(asked.daemon.blobs);
    return scene_teardown(state);
}

/* How often the log has said it. */
static unsigned times(const char *text)
{
    static char log[1 << 16];
    ssize_t size = pread(asked.log, log, sizeof(log) - 1, 0);
    unsigned n = 0;

    log[size < 0 ? 0 : size] = 0;
    for (const char *at = log; (at = strstr(at, text)); at++)
        n++;
    return n;
}

static void decide_some_times(void)
{
    struct rb_decide_planner planner = rb_planner_ask(asked.daemon.planner);
    struct rb_arena arena = {0};
    struct rb_decide_plan plan;

    for (int i = 0; i < DECISIONS; i++) {
        assert_false(planner.choose(planner.context, NULL, &asked.job, NULL, NULL, &arena, &plan));
        UNTIL(&asked.scene->until, !asked.scene->server->calls);
    }
    rb_arena_done(&arena);
}

static void what_is_lacking_is_told_once(void **state)
{
    struct rb_why why;
    char digest[33];

    (void)state;
    decide_some_times();
    assert_int_equal(times("node b is not there"), 1);
    assert_int_equal(rb_blobs_put(asked.daemon.blobs, blob, sizeof(blob), digest, &why), 0);
    decide_some_times(); /* the blob is there, and is no model */
    assert_int_equal(times("job gpt: not planned"), 1);
    rb_blobs_remove(asked.daemon.blobs, digest);
    decide_some_times();
    assert_int_equal(times("node b is not there"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_lacking_is_told_once, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
