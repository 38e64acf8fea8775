/* SPDX-License-Identifier: Apache-2.0 */
/* How messages name a listener and its callers, where the system chose the port. */
#include "daemon/rpc/stream.h"

#include "base/arena.h"
#include "tests/daemon/until.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct world {
    struct until until;
    struct rb_listen *listen;
    struct rb_stream *caller;
    char address[128];
    struct rb_why why; /* the caller has ended */
};

static void on_bytes(struct rb_stream *stream, struct rb_buffer *in, void *context)
{
    (void)stream;
    (void)context;
    rb_buffer_clear(in);
}

static void on_ended(struct rb_stream *stream, int err, const struct rb_why *why, void *context)
{
    (void)stream;
    (void)err;
    ((struct world *)context)->why = *why;
}

static void on_accepted(struct rb_stream *stream, void *context)
{
    static const struct rb_stream_events events = {.bytes = on_bytes, .ended = on_ended};
    struct world *world = context;

    world->caller = stream;
    rb_stream_set(stream, &events, world);
}

static int setup(void **state)
{
    static struct world world;
    struct rb_why why = {0};

    world = (struct world){0};
    until_open(&world.until);
    *state = &world;
    return rb_stream_listen(&world.until.loop, "tcp:127.0.0.1:0", NULL, on_accepted, &world,
                            world.address, &world.listen, &why);
}

static int teardown(void **state)
{
    struct world *world = *state;

    rb_stream_close(world->caller);
    rb_listen_close(world->listen);
    return until_close(&world->until);
}

/* ret_address: how others name the caller. */
static int call_in(const struct world *world, char **ret_address)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)atoi(strrchr(world->address, ':') + 1)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_return_code(connect(fd, (struct sockaddr *)&to, sizeof(to)), errno);
    assert_return_code(getsockname(fd, (struct sockaddr *)&to, &size), errno);
    *ret_address = rb_format("tcp:127.0.0.1:%d:", ntohs(to.sin_port));
    return fd;
}

static void a_caller_has_an_address(void **state)
{
    struct world *world = *state;
    RB_CLEANUP(rb_freep) char *address = NULL;
    int fd = call_in(world, &address);

    UNTIL(&world->until, world->caller);
    close(fd);
    UNTIL(&world->until, world->why.text[0]);
    assert_memory_equal(world->why.text, address, strlen(address));
}

/* The log tells where callers have to wait. */
static void a_listener_has_its_port(void **state)
{
    struct world *world = *state;
    RB_CLEANUP(rb_freep) char *address = NULL;
    struct rlimit limit, none;
    char path[] = "/tmp/rubato-listen.XXXXXX", text[4096] = "";
    int fd = call_in(world, &address), log = mkstemp(path), kept = dup(STDERR_FILENO);

    assert_return_code(getrlimit(RLIMIT_NOFILE, &limit), errno);
    none = limit;
    none.rlim_cur = (rlim_t)kept + 1;
    while (dup(STDERR_FILENO) < kept) /* none below is free */
        ;
    assert_return_code(setrlimit(RLIMIT_NOFILE, &none), errno);
    dup2(log, STDERR_FILENO);
    until_passed(&world->until, 50);
    dup2(kept, STDERR_FILENO);
    assert_return_code(setrlimit(RLIMIT_NOFILE, &limit), errno);
    assert_true(pread(log, text, sizeof(text) - 1, 0) > 0);
    assert_non_null(strstr(text, "have to wait"));
    assert_non_null(strstr(text, world->address));
    UNTIL(&world->until, world->caller);
    close(fd);
    close(log);
    unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_caller_has_an_address),
        TEST(a_listener_has_its_port),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
