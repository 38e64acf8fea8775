/* SPDX-License-Identifier: Apache-2.0 */
/* Listening.  We accept by ourselves: where no descriptor is left, libuv hangs up on all callers
 * that wait, or tries for ever, and nothing else happens meanwhile. */
#include "daemon/rpc/stream_inside.h"

#include "base/arena.h"
#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ADDRESS = 128, /* bytes of one, at most */
    BACKLOG = 512,
    AGAIN_MS = 100,  /* until it is tried again to accept */
    TELL_MS = 60000, /* the log is told no more often */
};

struct rb_listen {
    union rb_stream_socket socket;
    uv_poll_t poll;
    uv_timer_t again;
    int fd;
    bool polls;    /* that handle is open, too */
    int handles;   /* open */
    uint64_t tell; /* when the log may be told again that none is left */
    char *address;
    struct rb_tls *tls;
    void (*accepted)(struct rb_stream *stream, void *context);
    void *context;
};

/* ---- Accepting ------------------------------------------------------------------------------- */

static void on_call(uv_poll_t *poll, int status, int events);

static void on_again(uv_timer_t *timer)
{
    struct rb_listen *listen = timer->data;
    uv_poll_start(&listen->poll, UV_READABLE, on_call);
}

static void wait_a_while(struct rb_listen *listen, int number)
{
    const uint64_t now = uv_now(listen->poll.loop);
    uv_poll_stop(&listen->poll);
    uv_timer_start(&listen->again, on_again, AGAIN_MS, 0);
    if (now < listen->tell)
        return;
    listen->tell = now + TELL_MS;
    rb_log(RB_LOG_WARN, "callers of %s have to wait: %s", listen->address, strerror(number));
}

static void write_address(bool secret, const char *host, int port, char *ret_address)
{
    snprintf(ret_address, ADDRESS, strchr(host, ':') ? "%s:[%s]:%d" : "%s:%s:%d",
             secret ? "tls" : "tcp", host, port);
}

static int port_of(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
                                                : ((const struct sockaddr_in *)address)->sin_port);
}

/* The address of a caller; at a unix socket callers have none, nor has one that has hung up
 * already. */
static void name_caller(const struct rb_listen *listen, int fd, char *ret_address)
{
    struct sockaddr_storage from = {0};
    socklen_t size = sizeof(from);
    char host[INET6_ADDRSTRLEN];

    snprintf(ret_address, ADDRESS, "%s", listen->address);
    if (getpeername(fd, (struct sockaddr *)&from, &size) ||
        (from.ss_family != AF_INET && from.ss_family != AF_INET6))
        return;
    if (from.ss_family == AF_INET6)
        uv_ip6_name((struct sockaddr_in6 *)&from, host, sizeof(host));
    else
        uv_ip4_name((struct sockaddr_in *)&from, host, sizeof(host));
    write_address(listen->tls, host, port_of(&from), ret_address);
}

static struct rb_stream *stream_of(struct rb_listen *listen, int fd)
{
    const bool tcp = listen->socket.handle.type == UV_TCP;
    char address[ADDRESS];
    name_caller(listen, fd, address);
    struct rb_stream *stream = rb_stream_new(listen->poll.loop, address, tcp);
    int status =
        tcp ? uv_tcp_open(&stream->socket.tcp, fd) : uv_pipe_open(&stream->socket.pipe, fd);
    if (status)
        close(fd);
    else if (!listen->tls || !rb_stream_tls_new(listen->tls, NULL, &stream->tls, NULL))
        return stream;
    rb_stream_close(stream);
    return NULL;
}

/* Accept one at a time, so that a caller that was let in is heard before many others are let in. */
static void on_call(uv_poll_t *poll, int status, int events)
{
    struct rb_listen *listen = poll->data;
    (void)events;
    if (status < 0) { /* the poll is over */
        wait_a_while(listen, -status);
        return;
    }
    int fd = accept4(listen->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct rb_stream *stream = fd < 0 ? NULL : stream_of(listen, fd);
    if (stream)
        listen->accepted(stream, listen->context);
    else if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        wait_a_while(listen, errno);
}

/* ---- Listening ------------------------------------------------------------------------------- */

/* Does a living process listen there?  A negative errno where that cannot be asked. */
static int alive(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    memcpy(to.sun_path, path, strlen(path));
    bool refused = connect(fd, (struct sockaddr *)&to, sizeof(to)) && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static int bind_unix(struct rb_listen *listen, const char *path, struct rb_why *why)
{
    if (strlen(path) > RB_STREAM_PATH_MOST)
        return rb_why_set(why, RB_ELIMIT, "the path of the socket is longer than %d bytes: %s",
                          (int)RB_STREAM_PATH_MOST, path);
    int status = uv_pipe_bind(&listen->socket.pipe, path);
    int there = status == UV_EADDRINUSE ? alive(path) : 0;
    if (there < 0)
        return rb_why_set(why, RB_EIO, "cannot ask whether another process uses %s: %s", path,
                          strerror(-there));
    if (status == UV_EADDRINUSE && !there) {
        unlink(path);
        status = uv_pipe_bind(&listen->socket.pipe, path);
    }
    if (status == UV_EADDRINUSE)
        return rb_why_set(why, RB_EEXISTS, "%s is in use by another process", path);
    if (!status && chmod(path, 0600))
        status = -errno;
    return status ? rb_why_set(why, RB_EIO, "%s: %s", path, uv_strerror(status)) : RB_OK;
}

static int bind_tcp(struct rb_listen *listen, const char *where, char *ret_address,
                    struct rb_why *why)
{
    char host[256];
    const char *port;
    struct sockaddr_storage address;
    int length = sizeof(address);
    if (rb_stream_split(where, host, sizeof(host), &port))
        return rb_why_set(why, RB_EINVAL, "'%s' is not ADDRESS:PORT", where);
    bool six = strchr(host, ':') != NULL;
    int status = six ? uv_ip6_addr(host, atoi(port), (struct sockaddr_in6 *)&address)
                     : uv_ip4_addr(host, atoi(port), (struct sockaddr_in *)&address);
    if (status)
        return rb_why_set(why, RB_EINVAL, "'%s' is not a numeric address", host);
    status = uv_tcp_bind(&listen->socket.tcp, (struct sockaddr *)&address, 0);
    if (!status)
        status = uv_tcp_getsockname(&listen->socket.tcp, (struct sockaddr *)&address, &length);
    if (status)
        return rb_why_set(why, status == UV_EADDRINUSE ? RB_EEXISTS : RB_EIO, "%s: %s", where,
                          uv_strerror(status));
    write_address(listen->tls, host, port_of(&address), ret_address);
    return RB_OK;
}

static void on_listen_closed(uv_handle_t *handle)
{
    struct rb_listen *listen = handle->data;
    if (--listen->handles)
        return;
    free(listen->address);
    free(listen);
}

/* The descriptor is closed last. */
void rb_listen_close(struct rb_listen *listen)
{
    if (!listen || uv_is_closing(&listen->socket.handle))
        return;
    if (listen->polls)
        uv_close((uv_handle_t *)&listen->poll, on_listen_closed);
    uv_close((uv_handle_t *)&listen->again, on_listen_closed);
    uv_close(&listen->socket.handle, on_listen_closed);
}

static int start(struct rb_listen *own, uv_loop_t *loop)
{
    uv_fileno(&own->socket.handle, &own->fd);
    int status = listen(own->fd, BACKLOG) ? -errno : uv_poll_init(loop, &own->poll, own->fd);
    if (status)
        return status;
    own->polls = true;
    own->handles++;
    own->poll.data = own;
    return uv_poll_start(&own->poll, UV_READABLE, on_call);
}

int rb_stream_listen(uv_loop_t *loop, const char *address, struct rb_tls *tls,
                     void (*accepted)(struct rb_stream *stream, void *context), void *context,
                     char *ret_address, struct rb_listen **ret_listen, struct rb_why *why)
{
    const char *where = rb_stream_where(address);
    bool secret = !strncmp(address, "tls:", 4);
    if (!where && strncmp(address, "unix:", 5))
        return rb_why_set(why, RB_EINVAL, "'%s' is none of unix:PATH, tcp:HOST:PORT, tls:HOST:PORT",
                          address);
    if (secret && !tls)
        return rb_why_set(why, RB_EINVAL, "%s: there are no certificates for it", address);
    struct rb_listen *listen = rb_alloc(sizeof(*listen));
    listen->tls = secret ? tls : NULL;
    listen->accepted = accepted;
    listen->context = context;
    rb_stream_socket_init(&listen->socket, loop, where);
    uv_timer_init(loop, &listen->again);
    listen->socket.handle.data = listen->again.data = listen;
    listen->handles = 2;
    snprintf(ret_address, ADDRESS, "%s", address);
    int err =
        where ? bind_tcp(listen, where, ret_address, why) : bind_unix(listen, address + 5, why);
    listen->address = rb_string(ret_address);
    int status = err ? 0 : start(listen, loop);
    if (status)
        err =
            rb_why_set(why, status == UV_EADDRINUSE ? RB_EEXISTS : RB_EIO, "%s: %s", address,
                       status == UV_EADDRINUSE ? "in use by another process" : uv_strerror(status));
    if (err) {
        rb_listen_close(listen);
        return err;
    }
    *ret_listen = listen;
    return RB_OK;
}
