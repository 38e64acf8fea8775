/* SPDX-License-Identifier: Apache-2.0 */
/* Callers that ask and take nothing of the answer give their places back; a caller that takes some
 * of it, however slowly, gets all of it. */
#include "tests/daemon/server_scene.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <unistd.h>

static void places_come_back(void **state)
{
    struct scene *scene = *state;
    const uint64_t start = rb_clock_ns();
    int deaf[MOST / 2], asks;

    for (size_t i = 0; i < MOST / 2; i++)
        scene_say(deaf[i] = scene_call_in(scene), "large", 0);
    UNTIL(&scene->until, scene->n_large == MOST / 2);
    asks = scene_call_in(scene);
    assert_int_equal(scene_ask(scene, asks), RB_EAGAIN);
    close(asks);
    UNTIL(&scene->until, !scene->server->n_asked);
    assert_true((rb_clock_ns() - start) / 1000000 >= DEAF_MS / 2);
    UNTIL(&scene->until, !scene->server->n_connections && !scene->server->requests);
    asks = scene_call_in(scene);
    assert_int_equal(scene_ask(scene, asks), 0);
    close(asks);
    for (size_t i = 0; i < MOST / 2; i++)
        close(deaf[i]);
}

/* Less at a time than makes the kernel ask the server for more. */
static void who_is_slow_is_heard_out(void **state)
{
    enum { SIP = 40 << 10 };
    struct scene *scene = *state;
    int slow = scene_call_in(scene);
    size_t all = 0;

    scene_say(slow, "large", 0);
    for (size_t i = 0; i < 8; i++) {
        until_passed(&scene->until, DEAF_MS / 4);
        all += scene_take(slow, SIP);
    }
    assert_int_equal(all, 8 * SIP);
    UNTIL(&scene->until, (all += scene_take(slow, LARGE)) > LARGE);
    UNTIL(&scene->until, !scene->server->n_asked);
    assert_false(scene_is_shut(slow));
    close(slow);
}

/* A caller that follows something hears nothing for hours, and takes what comes then. */
static void who_waits_is_not_deaf(void **state)
{
    struct scene *scene = *state;
    int follows = scene_call_in(scene);

    scene_say(follows, "hold", 0);
    UNTIL(&scene->until, scene->n_held == 1);
    for (size_t i = 0; i < 2; i++) {
        until_passed(&scene->until, DEAF_MS * 5 / 4);
        rb_request_piece(scene->held[0], "news", 4);
        assert_int_equal(scene_answer(scene, follows), 0);
    }
    rb_request_reply(scene->held[0], json_object());
    assert_int_equal(scene_answer(scene, follows), 0);
    close(follows);
}

/* A rubatod that forwards is held up by its own caller, and hangs up on that caller by itself. */
static void who_forwards_has_more_time(void **state)
{
    struct scene *scene = *state;
    Rb__Call call = RB__CALL__INIT;
    int forwards = scene_call_in(scene);

    call.method = "large";
    call.has_hops = true;
    call.hops = 1;
    scene_send(forwards, &call, 0);
    until_passed(&scene->until, DEAF_MS * 3 / 2);
    assert_int_equal(scene_answer(scene, forwards), 0);
    close(forwards);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(places_come_back),
        TEST(who_is_slow_is_heard_out),
        TEST(who_waits_is_not_deaf),
        TEST(who_forwards_has_more_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
