/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are announced large and come half: memory follows what has come, and all calls
 * together have no more than they may. */
#include "tests/daemon/server_scene.h"

#include "base/arena.h"
#include "proto/frame.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HALF_MOST = 1 << 20 };

/* Send more of a call, as fast as it is read. */
static void pour(struct scene *scene, int fd, size_t size)
{
    static const char some[4096];
    size_t said = 0;

    while (said < size) {
        ssize_t n =
            send(fd, some, size - said < sizeof(some) ? size - said : sizeof(some), MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN)
            fail_msg("hung up on behind %zu bytes: %s", said, strerror(errno));
        said += n > 0 ? (size_t)n : 0;
        until_passed(&scene->until, 0);
    }
}

/* A caller that announces the largest call there may be, and sends `size` bytes of it. */
static int begin(struct scene *scene, size_t size)
{
    static const char head[RB_FRAME_HEADER] = {'R', 'B', 'F', '1', RB_FRAME_CALL,       0, 0,
                                               0,   0,   0,   0,   RB_FRAME_LIMIT >> 24};
    const size_t before = scene->server->half;
    int fd = scene_call_in(scene);

    assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
    pour(scene, fd, size);
    UNTIL(&scene->until, scene->server->half == before + sizeof(head) + size);
    return fd;
}

static void the_largest_gives_way(void **state)
{
    struct scene *scene = *state;
    int small[3], large, asks = scene_call_in(scene);

    scene->server->half_most = HALF_MOST;
    scene->server->silent_ms = LIMIT_MS;
    for (size_t i = 0; i < 3; i++)
        small[i] = begin(scene, HALF_MOST / 5);
    large = begin(scene, HALF_MOST / 3);
    assert_true(scene->server->half > HALF_MOST * 9 / 10);
    pour(scene, small[2], HALF_MOST / 10);
    UNTIL(&scene->until, scene->server->half < HALF_MOST * 9 / 10);
    assert_int_equal(scene_ask(scene, asks), 0);
    pour(scene, large, LARGE); /* it hears why when it has sent all */
    assert_int_equal(scene_answer(scene, large), RB_EAGAIN);
    assert_true(scene->server->half < HALF_MOST);
    for (size_t i = 0; i < 3; i++)
        assert_false(scene_is_shut(small[i]));
    for (size_t i = 0; i < 3; i++)
        close(small[i]);
    close(large);
    close(asks);
    UNTIL(&scene->until, !scene->server->n_connections);
    assert_int_equal(scene->server->half, 0);
}

static void memory_follows_what_has_come(void **state)
{
    struct scene *scene = *state;
    Rb__Call call = RB__CALL__INIT;
    struct rb_buffer out = {0};
    int half = begin(scene, 100), whole = scene_call_in(scene);

    assert_true(scene->server->connections->in->room < LARGE / 16);
    call.method = "hold";
    call.body = memset(rb_alloc(LARGE + 1), ' ', LARGE);
    call.body[0] = '{', call.body[LARGE - 1] = '}';
    rb_frame_put(&out, RB_FRAME_CALL, &call.base);
    for (size_t said = 0; said < out.size;) {
        ssize_t n = write(whole, out.data + said, out.size - said);

        said += n > 0 ? (size_t)n : 0;
        until_passed(&scene->until, 0);
    }
    UNTIL(&scene->until, scene->n_held == 1);
    assert_true(scene->server->connections->in->room < LARGE / 16);
    rb_request_reply(scene->held[0], json_object());
    assert_int_equal(scene_answer(scene, whole), 0);
    rb_buffer_done(&out);
    free(call.body);
    close(half);
    close(whole);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_largest_gives_way),
        TEST(memory_follows_what_has_come),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
