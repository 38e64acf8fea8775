/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/service.h"

#include "base/arena.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    SOON_MS = 100,    /* until it is ready, */
    EVERY_MS = 1000,  /* and from then on at least */
    BEHIND_MS = 10000 /* behind a leave: to give back the lease and stop etcd */
};

struct rb_service {
    void (*see)(void *context, struct rb_service_seen *ret);
    void *context;
    uv_timer_t timer;
    struct sockaddr_un to;
    socklen_t to_size;
    int socket; /* -1: no manager listens */
    uint64_t every;
    bool watched; /* the manager ends a process that is silent */
    bool ready, leaving;
    char *status; /* the last that was told */
};

/* ---- What is told ---------------------------------------------------------------------------- */

static void add_count(struct rb_buffer *out, size_t n, const char *what)
{
    rb_buffer_format(out, "%zu %s%s", n, what, n == 1 ? "" : "s");
}

void rb_service_status(const struct rb_service_seen *seen, struct rb_buffer *out)
{
    rb_buffer_format(out, "node %s: ", seen->node);
    add_count(out, seen->devices, "device");
    rb_buffer_text(out, ", ");
    add_count(out, seen->workers, "worker");
    if (seen->leaving)
        rb_buffer_text(out, seen->workers ? ", which are to leave" : "; stopping");
    else if (!seen->started)
        rb_buffer_text(out, "; starting");
    else if (!seen->connected)
        rb_buffer_text(out, seen->workers ? ", which train on; etcd does not answer"
                                          : "; etcd does not answer");
    else if (!seen->ready)
        rb_buffer_text(out, "; registers itself");
    else if (seen->leads)
        rb_buffer_text(out, ", coordinator");
}

/* READY and STOPPING once each, and the status whenever it is another. */
static void add_news(struct rb_service *service, const struct rb_service_seen *seen,
                     struct rb_buffer *out)
{
    struct rb_buffer status = {0};

    if (seen->ready && !service->ready)
        rb_buffer_text(out, "READY=1\n");
    if (seen->leaving && !service->leaving)
        rb_buffer_format(out, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%" PRIu64 "\n",
                         (seen->leave_ms + BEHIND_MS) * 1000);
    service->ready |= seen->ready;
    service->leaving |= seen->leaving;
    rb_service_status(seen, &status);
    if (!service->status || strcmp(service->status, status.data) != 0) {
        rb_buffer_format(out, "STATUS=%s\n", status.data);
        free(service->status);
        service->status = rb_buffer_take(&status);
    }
    rb_buffer_done(&status);
}

/* A manager that does not take it has other troubles. */
static void tell(const struct rb_service *service, const struct rb_buffer *text)
{
    ssize_t sent;

    do {
        sent = sendto(service->socket, text->data, text->size, MSG_NOSIGNAL,
                      (const struct sockaddr *)&service->to, service->to_size);
    } while (sent < 0 && errno == EINTR);
}

void rb_service_look(struct rb_service *service)
{
    struct rb_service_seen seen = {0};
    struct rb_buffer text = {0};

    if (service->socket < 0)
        return;
    service->see(service->context, &seen);
    add_news(service, &seen, &text);
    if (service->watched)
        rb_buffer_text(&text, "WATCHDOG=1\n");
    if (text.size)
        tell(service, &text);
    rb_buffer_done(&text);
}

static void on_timer(uv_timer_t *timer)
{
    struct rb_service *service = timer->data;
    const bool waited = !service->ready;

    rb_service_look(service);
    if (waited && service->ready)
        uv_timer_start(timer, on_timer, service->every, service->every);
}

/* ---- Whom it is told ------------------------------------------------------------------------- */

static int open_socket(const char *path, struct sockaddr_un *ret_to, socklen_t *ret_size)
{
    const size_t size = path ? strlen(path) : 0;

    if (size < 2 || size >= sizeof(ret_to->sun_path) || (path[0] != '/' && path[0] != '@'))
        return -1;
    ret_to->sun_family = AF_UNIX;
    memcpy(ret_to->sun_path, path, size);
    if (path[0] == '@')
        ret_to->sun_path[0] = 0; /* no file, but a name */
    *ret_size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Within how many ms the manager has to hear something of us; 0: it does not count. */
static uint64_t watched_ms(void)
{
    const char *pid = getenv("WATCHDOG_PID"), *us = getenv("WATCHDOG_USEC");

    if (!us || (pid && strtol(pid, NULL, 10) != getpid()))
        return 0;
    return strtoull(us, NULL, 10) / 1000;
}

struct rb_service *rb_service_new(uv_loop_t *loop,
                                  void (*see)(void *context, struct rb_service_seen *ret),
                                  void *context)
{
    struct rb_service *service = rb_alloc(sizeof(*service));
    const uint64_t watched = watched_ms(), third = watched / 3;

    service->see = see;
    service->context = context;
    service->socket = open_socket(getenv("NOTIFY_SOCKET"), &service->to, &service->to_size);
    service->watched = third > 0;
    service->every = third && third < EVERY_MS ? third : EVERY_MS;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_PID");
    unsetenv("WATCHDOG_USEC");
    uv_timer_init(loop, &service->timer);
    service->timer.data = service;
    if (service->socket >= 0)
        uv_timer_start(&service->timer, on_timer, 0, SOON_MS);
    return service;
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void rb_service_free(struct rb_service *service)
{
    if (service->socket >= 0)
        close(service->socket);
    free(service->status);
    uv_close((uv_handle_t *)&service->timer, on_closed);
}
