/* SPDX-License-Identifier: Apache-2.0 */
/* Callers who keep connections and say nothing, half of something, or too much at a time: none of
 * them keeps others from an answer.  They are plain sockets; the server's times are short. */
#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/file.h"
#include "daemon/etcd/etcd.h"
#include "daemon/etcd/store.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"
#include "tests/daemon/until.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, SILENT_MS = 200, STALLED_MS = 2000, LARGE = 8 << 20, READ = 65536 };

struct world {
    struct until until;
    char folder[64];
    struct rb_etcd *etcd;
    struct rb_store *store;
    struct rb_server *server;
    struct rb_request *held[MOST];
    size_t n_held, n_large;
};

static void echo(struct rb_request *request, void *context)
{
    (void)context;
    rb_request_reply(request, json_object());
}

static void large(struct rb_request *request, void *context)
{
    struct world *world = context;
    char *data = rb_alloc(LARGE);
    world->n_large++;
    rb_request_piece(request, data, LARGE);
    rb_request_reply(request, json_object());
    free(data);
}

static void hold(struct rb_request *request, void *context)
{
    struct world *world = context;
    world->held[world->n_held++] = request;
}

static const struct rb_server_method methods[] = {
    {"echo", false, echo}, {"large", false, large}, {"hold", false, hold}, {0}};

static int setup(void **state)
{
    static struct world world;
    struct rb_why why = {0};
    const char *nowhere = "unix:/nowhere/at/all";
    char taken[128];

    world = (struct world){.folder = "/tmp/rubato-bounds.XXXXXX"};
    assert_non_null(mkdtemp(world.folder));
    until_open(&world.until);
    assert_int_equal(rb_etcd_new(&world.until.loop, &nowhere, 1, &world.etcd, &why), RB_OK);
    world.store = rb_store_new(&world.until.loop, world.etcd);
    world.server = rb_server_new(&world.until.loop, world.store, "a");
    world.server->most = MOST;
    world.server->silent_ms = SILENT_MS;
    world.server->stalled_ms = STALLED_MS;
    rb_server_add(world.server, methods, &world);
    RB_CLEANUP(rb_freep) char *local = rb_format("unix:%s/sock", world.folder);
    assert_int_equal(rb_server_listen(world.server, local, taken, &why), RB_OK);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;
    struct rb_why why;

    rb_server_free(world->server);
    rb_store_free(world->store);
    rb_etcd_free(world->etcd);
    assert_int_equal(until_close(&world->until), 0);
    return rb_file_remove(world->folder, &why);
}

/* ---- Callers --------------------------------------------------------------------------------- */

static int call_in(struct world *world)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_return_code(fd, errno);
    strcat(strcpy(to.sun_path, world->folder), "/sock");
    assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof(to)), errno);
    return fd;
}

/* The call, but for its last `less` bytes. */
static void say(int fd, const char *method, size_t less)
{
    struct rb_buffer out = {0};
    Rb__Call call = RB__CALL__INIT;

    call.method = (char *)method;
    rb_frame_put(&out, RB_FRAME_CALL, &call.base);
    assert_int_equal(write(fd, out.data, out.size - less), out.size - less);
    rb_buffer_done(&out);
}

static bool is_shut(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0 || errno == ECONNRESET;
}

/* A whole reply, if it is there; its error is told. */
static bool hears(int fd, struct rb_buffer *in, bool *heard, int *ret_error)
{
    struct rb_why why;
    ProtobufCMessage *message;

    for (ssize_t n; (n = read(fd, rb_buffer_reserve(in, READ), READ)) > 0;)
        in->size += (size_t)n;
    *heard = !rb_frame_take(in, RB_FRAME_REPLY, &rb__reply__descriptor, &message, &why);
    if (!*heard)
        return false;
    *ret_error = ((Rb__Reply *)message)->error;
    protobuf_c_message_free_unpacked(message, NULL);
    return true;
}

/* Takes what is there and forgets it. */
static bool forget(int fd)
{
    char some[4096];

    while (read(fd, some, sizeof(some)) > 0)
        ;
    return true;
}

static int answer(struct world *world, int fd)
{
    struct rb_buffer in = {0};
    bool heard = false;
    int error = 0;

    UNTIL(&world->until, heard || hears(fd, &in, &heard, &error));
    rb_buffer_done(&in);
    return error;
}

static int ask(struct world *world, int fd)
{
    say(fd, "echo", 0);
    return answer(world, fd);
}

static uint64_t shut_ms(struct world *world, int fd, uint64_t since_ns)
{
    UNTIL(&world->until, is_shut(fd));
    close(fd);
    return (rb_clock_ns() - since_ns) / 1000000;
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static void the_silent_are_shut_out(void **state)
{
    struct world *world = *state;
    const uint64_t start = rb_clock_ns();
    int silent = call_in(world), half = call_in(world), asks = call_in(world);

    say(half, "echo", 1);
    assert_int_equal(ask(world, asks), 0);
    assert_true(shut_ms(world, silent, start) >= SILENT_MS / 2);
    assert_false(is_shut(half)); /* who has said something has more time */
    assert_int_equal(ask(world, asks), 0);
    assert_true(shut_ms(world, half, start) >= STALLED_MS / 2);
    assert_true(shut_ms(world, asks, start) >= STALLED_MS / 2);
    assert_int_equal(world->server->n_connections, 0);
    assert_int_equal(world->server->n_asked, 0);
}

/* However long the answer takes, and whoever is slow to say or to take something. */
static void others_are_not(void **state)
{
    struct world *world = *state;
    int waits = call_in(world), slow = call_in(world), deaf = call_in(world);

    say(waits, "hold", 0);
    say(deaf, "large", 0);
    for (const char *at = "RBF"; *at; at++) {
        assert_int_equal(write(slow, at, 1), 1);
        until_passed(&world->until, STALLED_MS * 2 / 5);
    }
    assert_false(is_shut(waits) || is_shut(slow) || is_shut(deaf));
    rb_request_reply(world->held[0], json_object());
    assert_int_equal(answer(world, waits), 0);
    UNTIL(&world->until, world->server->n_asked == 1);
    assert_int_equal(answer(world, deaf), 0); /* the piece */
    UNTIL(&world->until, !world->server->n_asked);
    close(waits);
    close(slow);
    close(deaf);
}

/* Answers that nobody takes are not made, and calls behind them not read without end. */
static void who_asks_much_at_once_waits(void **state)
{
    enum { CALLS = 5 };
    struct world *world = *state;
    int deaf = call_in(world), other = call_in(world);
    char call[4096];
    ssize_t said = 0;

    for (size_t i = 0; i < CALLS; i++)
        say(deaf, "large", 0);
    assert_int_equal(ask(world, other), 0);
    until_passed(&world->until, 50);
    assert_int_equal(world->n_large, 1);
    memset(call, 0, sizeof(call));
    for (ssize_t n = 1; n > 0 && said < LARGE; until_passed(&world->until, 1))
        while ((n = write(deaf, call, sizeof(call))) > 0)
            said += n;
    assert_true(said < LARGE);
    assert_int_equal(ask(world, other), 0);
    UNTIL(&world->until, forget(deaf) && world->n_large == CALLS);
    assert_int_equal(ask(world, other), 0);
    close(deaf);
    close(other);
}

/* What they asked for goes on, with the descriptors that it takes. */
static void who_hangs_up_keeps_the_place(void **state)
{
    struct world *world = *state;

    for (size_t i = 0; i < MOST / 2; i++) {
        int gone = call_in(world);
        say(gone, "hold", 0);
        UNTIL(&world->until, world->n_held == i + 1);
        close(gone);
    }
    UNTIL(&world->until, !world->server->n_connections);
    int asks = call_in(world);
    assert_int_equal(ask(world, asks), RB_EAGAIN);
    close(asks);
    for (size_t i = 0; i < MOST / 2; i++)
        rb_request_reply(world->held[i], json_object());
    assert_int_equal(world->server->n_asked, 0);
    asks = call_in(world);
    assert_int_equal(ask(world, asks), 0);
    close(asks);
}

static void a_crowd_gives_way(void **state)
{
    struct world *world = *state;
    int asks[MOST / 2 + 1], began, crowd[200];

    world->server->silent_ms = world->server->stalled_ms = LIMIT_MS;
    for (size_t i = 0; i < MOST / 2; i++)
        say(asks[i] = call_in(world), "hold", 0);
    UNTIL(&world->until, world->n_held == MOST / 2);
    say(began = call_in(world), "echo", 1);
    UNTIL(&world->until,
          world->server->n_connections == MOST / 2 + 1 && world->server->connections->in);
    for (size_t i = 0; i < 200; i++)
        crowd[i] = call_in(world);
    UNTIL(&world->until, is_shut(crowd[199 - MOST / 2 + 1]));
    assert_int_equal(world->server->n_connections, MOST);
    assert_false(is_shut(began));
    assert_false(is_shut(crowd[199]));

    asks[MOST / 2] = call_in(world); /* as many are being answered as may be */
    assert_int_equal(ask(world, asks[MOST / 2]), RB_EAGAIN);
    UNTIL(&world->until, is_shut(asks[MOST / 2]));
    rb_request_reply(world->held[0], json_object());
    assert_int_equal(answer(world, asks[0]), 0);
    UNTIL(&world->until, world->server->n_asked < MOST / 2);
    assert_int_equal(ask(world, crowd[199]), 0);
    for (size_t i = 1; i < MOST / 2; i++)
        rb_request_reply(world->held[i], json_object());
    for (size_t i = 0; i < MOST / 2 + 1; i++)
        close(asks[i]);
    for (size_t i = 0; i < 200; i++)
        close(crowd[i]);
    close(began);
}

/* They wait, which takes no time of a core, and are let in when there is one. */
static void no_descriptor_is_left(void **state)
{
    struct world *world = *state;
    struct rlimit limit, none;
    int fds[3];

    for (size_t i = 0; i < 3; i++)
        fds[i] = call_in(world);
    assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), errno);
    none = limit;
    none.rlim_cur = (rlim_t)fds[2] + 1;
    while (dup(STDERR_FILENO) < fds[2]) /* none below is free */
        ;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
    clock_t used = clock();
    until_passed(&world->until, 500);
    used = clock() - used;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), errno);
    assert_true(used < CLOCKS_PER_SEC / 5);
    assert_int_equal(world->server->n_connections, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ask(world, fds[i]), 0);
        close(fds[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_silent_are_shut_out),     TEST(others_are_not),
        TEST(who_asks_much_at_once_waits), TEST(who_hangs_up_keeps_the_place),
        TEST(a_crowd_gives_way),           TEST(no_descriptor_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
