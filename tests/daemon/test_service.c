/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- The status line ------------------------------------------------------------------------- */

static void assert_status(struct rb_service_seen seen, const char *expected)
{
    struct rb_buffer out = {0};

    seen.node = "a";
    rb_service_status(&seen, &out);
    assert_string_equal(out.data, expected);
    rb_buffer_done(&out);
}

static void test_status(void **state)
{
    struct rb_service_seen seen = {.devices = 4};

    (void)state;
    assert_status(seen, "node a: 4 devices, 0 workers; starting");
    seen.started = seen.connected = true;
    assert_status(seen, "node a: 4 devices, 0 workers; registers itself");
    seen.ready = true;
    seen.workers = 1;
    assert_status(seen, "node a: 4 devices, 1 worker");
    seen.leads = true;
    assert_status(seen, "node a: 4 devices, 1 worker, coordinator");
    seen.connected = seen.ready = false;
    assert_status(seen, "node a: 4 devices, 1 worker, which train on; etcd does not answer");
    seen.leaving = true;
    assert_status(seen, "node a: 4 devices, 1 worker, which are to leave");
    seen.workers = 0;
    assert_status(seen, "node a: 4 devices, 0 workers; stopping");
}

/* ---- The socket ------------------------------------------------------------------------------ */

struct manager {
    int socket;
    uv_loop_t loop;
    struct rb_service_seen seen;
};

static void see(void *context, struct rb_service_seen *ret)
{
    *ret = ((struct manager *)context)->seen;
}

/* At a name that no other has: the kernel gives it, "@" and five digits. */
static void manager_open(struct manager *manager)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    char name[64];

    *manager = (struct manager){.seen = {.node = "a", .devices = 1}};
    manager->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_int_equal(bind(manager->socket, (struct sockaddr *)&address, sizeof(sa_family_t)), 0);
    assert_int_equal(getsockname(manager->socket, (struct sockaddr *)&address, &size), 0);
    snprintf(name, sizeof name, "@%.*s", (int)(size - offsetof(struct sockaddr_un, sun_path) - 1),
             address.sun_path + 1);
    setenv("NOTIFY_SOCKET", name, 1);
    uv_loop_init(&manager->loop);
}

static void manager_close(struct manager *manager, struct rb_service *service)
{
    rb_service_free(service);
    uv_run(&manager->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&manager->loop), 0);
    close(manager->socket);
}

static void assert_heard(const struct manager *manager, const char *expected)
{
    char text[1024];
    ssize_t size = recv(manager->socket, text, sizeof text - 1, 0);

    text[size > 0 ? size : 0] = 0;
    assert_string_equal(text, expected);
}

/* The next word by itself. */
static void assert_hears(struct manager *manager, const char *expected)
{
    char byte;

    while (recv(manager->socket, &byte, 1, MSG_PEEK) < 0)
        uv_run(&manager->loop, UV_RUN_NOWAIT);
    assert_heard(manager, expected);
}

static void test_told_once(void **state)
{
    struct manager manager;
    struct rb_service *service;

    (void)state;
    manager_open(&manager);
    service = rb_service_new(&manager.loop, see, &manager);
    assert_null(getenv("NOTIFY_SOCKET"));
    rb_service_look(service);
    assert_heard(&manager, "STATUS=node a: 1 device, 0 workers; starting\n");
    rb_service_look(service);
    assert_heard(&manager, "");
    manager.seen.started = manager.seen.connected = manager.seen.ready = true;
    rb_service_look(service);
    assert_heard(&manager, "READY=1\nSTATUS=node a: 1 device, 0 workers\n");
    manager.seen.ready = false; /* its lease has ended; to the manager nothing changes */
    rb_service_look(service);
    assert_heard(&manager, "STATUS=node a: 1 device, 0 workers; registers itself\n");
    manager.seen.ready = true;
    manager.seen.leaving = true;
    manager.seen.leave_ms = 90000;
    rb_service_look(service);
    assert_heard(&manager, "STOPPING=1\nEXTEND_TIMEOUT_USEC=100000000\n"
                           "STATUS=node a: 1 device, 0 workers; stopping\n");
    rb_service_look(service);
    assert_heard(&manager, "");
    manager_close(&manager, service);
}

/* Also before it is ready, and by the timer alone. */
static void test_watched(void **state)
{
    struct manager manager;
    struct rb_service *service;

    (void)state;
    manager_open(&manager);
    setenv("WATCHDOG_USEC", "30000", 1);
    service = rb_service_new(&manager.loop, see, &manager);
    assert_null(getenv("WATCHDOG_USEC"));
    assert_hears(&manager, "STATUS=node a: 1 device, 0 workers; starting\nWATCHDOG=1\n");
    manager.seen.started = manager.seen.connected = manager.seen.ready = true;
    assert_hears(&manager, "READY=1\nSTATUS=node a: 1 device, 0 workers\nWATCHDOG=1\n");
    uint64_t before = uv_hrtime();
    for (int i = 0; i < 3; i++)
        assert_hears(&manager, "WATCHDOG=1\n");
    assert_true(uv_hrtime() - before > 20000000); /* each after a third of its time */
    manager_close(&manager, service);
}

static void test_watches_another(void **state)
{
    struct manager manager;
    struct rb_service *service;

    (void)state;
    manager_open(&manager);
    setenv("WATCHDOG_USEC", "30000", 1);
    setenv("WATCHDOG_PID", "1", 1);
    service = rb_service_new(&manager.loop, see, &manager);
    rb_service_look(service);
    assert_heard(&manager, "STATUS=node a: 1 device, 0 workers; starting\n");
    manager_close(&manager, service);
}

/* No manager, one that is gone, a path that is none. */
static void test_nobody(void **state)
{
    static const char *const paths[] = {NULL, "/nowhere/notify", "", "@", "notify", "vsock:2:1234"};
    struct manager manager;

    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        manager_open(&manager);
        if (paths[i])
            setenv("NOTIFY_SOCKET", paths[i], 1);
        else
            unsetenv("NOTIFY_SOCKET");
        struct rb_service *service = rb_service_new(&manager.loop, see, &manager);
        rb_service_look(service);
        assert_heard(&manager, "");
        manager_close(&manager, service);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status),  cmocka_unit_test(test_told_once),
        cmocka_unit_test(test_watched), cmocka_unit_test(test_watches_another),
        cmocka_unit_test(test_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
