/* SPDX-License-Identifier: Apache-2.0 */
/* Callers that keep connections and send nothing, half of something, or too much at a time: none of
 * them keeps others from an answer. */
#include "tests/daemon/server_scene.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static void the_silent_are_shut_out(void **state)
{
    struct scene *scene = *state;
    const uint64_t start = rb_clock_ns();
    int silent = scene_call_in(scene), half = scene_call_in(scene), asks = scene_call_in(scene);

    scene_say(half, "echo", 1);
    assert_int_equal(scene_ask(scene, asks), 0);
    assert_true(scene_shut_ms(scene, silent, start) >= SILENT_MS / 2);
    assert_false(scene_is_shut(half)); /* a caller that has sent something has more time */
    assert_int_equal(scene_ask(scene, asks), 0);
    assert_true(scene_shut_ms(scene, half, start) >= STALLED_MS / 2);
    assert_true(scene_shut_ms(scene, asks, start) >= STALLED_MS / 2);
    assert_int_equal(scene->server->n_connections, 0);
    assert_int_equal(scene->server->n_asked, 0);
}

/* However long the answer takes, and however slowly a caller sends. */
static void others_are_not(void **state)
{
    struct scene *scene = *state;
    int waits = scene_call_in(scene), slow = scene_call_in(scene);

    scene_say(waits, "hold", 0);
    for (const char *at = "RBF"; *at; at++) {
        assert_int_equal(write(slow, at, 1), 1);
        until_passed(&scene->until, STALLED_MS * 2 / 5);
    }
    assert_false(scene_is_shut(waits) || scene_is_shut(slow));
    rb_request_reply(scene->held[0], json_object());
    assert_int_equal(scene_answer(scene, waits), 0);
    UNTIL(&scene->until, !scene->server->n_asked);
    close(waits);
    close(slow);
}

/* Answers that the caller does not take are not made, and calls behind them are not read without
 * end. */
static void who_asks_much_at_once_waits(void **state)
{
    enum { CALLS = 5 };
    struct scene *scene = *state;
    int deaf = scene_call_in(scene), other = scene_call_in(scene);
    char call[4096];
    ssize_t said = 0;

    for (size_t i = 0; i < CALLS; i++)
        scene_say(deaf, "large", 0);
    assert_int_equal(scene_ask(scene, other), 0);
    until_passed(&scene->until, 50);
    assert_int_equal(scene->n_large, 1);
    memset(call, 0, sizeof(call));
    for (ssize_t n = 1; n > 0 && said < LARGE; until_passed(&scene->until, 1))
        while ((n = write(deaf, call, sizeof(call))) > 0)
            said += n;
    assert_true(said < LARGE);
    assert_int_equal(scene_ask(scene, other), 0);
    UNTIL(&scene->until, scene_forget(deaf) && scene->n_large == CALLS);
    assert_int_equal(scene_ask(scene, other), 0);
    close(deaf);
    close(other);
}

/* What the callers asked for goes on, with the descriptors that it takes. */
static void who_hangs_up_keeps_the_place(void **state)
{
    struct scene *scene = *state;

    for (size_t i = 0; i < MOST / 2; i++) {
        int gone = scene_call_in(scene);
        scene_say(gone, "hold", 0);
        UNTIL(&scene->until, scene->n_held == i + 1);
        close(gone);
    }
    UNTIL(&scene->until, !scene->server->n_connections);
    int asks = scene_call_in(scene);
    assert_int_equal(scene_ask(scene, asks), RB_EAGAIN);
    close(asks);
    for (size_t i = 0; i < MOST / 2; i++)
        rb_request_reply(scene->held[i], json_object());
    assert_int_equal(scene->server->n_asked, 0);
    asks = scene_call_in(scene);
    assert_int_equal(scene_ask(scene, asks), 0);
    close(asks);
}

static void a_crowd_gives_way(void **state)
{
    struct scene *scene = *state;
    int asks[MOST / 2 + 1], began, crowd[200];

    scene->server->silent_ms = scene->server->stalled_ms = LIMIT_MS;
    for (size_t i = 0; i < MOST / 2; i++)
        scene_say(asks[i] = scene_call_in(scene), "hold", 0);
    UNTIL(&scene->until, scene->n_held == MOST / 2);
    scene_say(began = scene_call_in(scene), "echo", 1);
    UNTIL(&scene->until,
          scene->server->n_connections == MOST / 2 + 1 && scene->server->connections->in);
    for (size_t i = 0; i < 200; i++)
        crowd[i] = scene_call_in(scene);
    UNTIL(&scene->until, scene_is_shut(crowd[199 - MOST / 2 + 1]));
    assert_int_equal(scene->server->n_connections, MOST);
    assert_false(scene_is_shut(began));
    assert_false(scene_is_shut(crowd[199]));

    asks[MOST / 2] = scene_call_in(scene); /* as many are being answered as may be */
    assert_int_equal(scene_ask(scene, asks[MOST / 2]), RB_EAGAIN);
    UNTIL(&scene->until, scene_is_shut(asks[MOST / 2]));
    rb_request_reply(scene->held[0], json_object());
    assert_int_equal(scene_answer(scene, asks[0]), 0);
    UNTIL(&scene->until, scene->server->n_asked < MOST / 2);
    assert_int_equal(scene_ask(scene, crowd[199]), 0);
    for (size_t i = 1; i < MOST / 2; i++)
        rb_request_reply(scene->held[i], json_object());
    for (size_t i = 0; i < MOST / 2 + 1; i++)
        close(asks[i]);
    for (size_t i = 0; i < 200; i++)
        close(crowd[i]);
    close(began);
}

/* The callers wait, which takes no time of a core, and are let in when a descriptor is free. */
static void no_descriptor_is_left(void **state)
{
    struct scene *scene = *state;
    struct rlimit limit, none;
    int fds[3];

    for (size_t i = 0; i < 3; i++)
        fds[i] = scene_call_in(scene);
    assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), errno);
    none = limit;
    none.rlim_cur = (rlim_t)fds[2] + 1;
    while (dup(STDERR_FILENO) < fds[2]) /* none below is free */
        ;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
    clock_t used = clock();
    until_passed(&scene->until, 500);
    used = clock() - used;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), errno);
    assert_true(used < CLOCKS_PER_SEC / 5);
    assert_int_equal(scene->server->n_connections, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(scene_ask(scene, fds[i]), 0);
        close(fds[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_silent_are_shut_out),     TEST(others_are_not),
        TEST(who_asks_much_at_once_waits), TEST(who_hangs_up_keeps_the_place),
        TEST(a_crowd_gives_way),           TEST(no_descriptor_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
