/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/stream.h"

#include "base/arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATH_MOST = sizeof(((struct sockaddr_un *)0)->sun_path) - 1, READ = 64 << 10 };

union socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
};

struct rb_stream {
    union socket socket;
    uv_timer_t later; /* reports what went wrong at once, later */
    uv_connect_t connect;
    uv_getaddrinfo_t resolve;
    struct rb_stream_events events;
    void *context;
    struct rb_buffer in, waiting; /* waiting: written before the connection stood */
    char *address;
    bool connected, closed, ended, paused, resolving;
    int handles; /* still open */
    int err;
    struct rb_why why;
};

struct write {
    uv_write_t request;
    struct rb_stream *stream;
    char *bytes;
};

/* ---- Ends ------------------------------------------------------------------------------------ */

static void release(struct rb_stream *stream)
{
    if (stream->handles || stream->resolving)
        return;
    rb_buffer_done(&stream->in);
    rb_buffer_done(&stream->waiting);
    free(stream->address);
    free(stream);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_stream *stream = handle->data;
    stream->handles--;
    release(stream);
}

static void end(struct rb_stream *stream, int err, const char *what)
{
    if (stream->ended || stream->closed)
        return;
    stream->ended = true;
    if (stream->connected)
        uv_read_stop(&stream->socket.stream);
    struct rb_why why = {0};
    rb_why_set(&why, err, "%s: %s", stream->address, what);
    stream->events.ended(stream, err, &why, stream->context);
}

static void on_later(uv_timer_t *timer)
{
    struct rb_stream *stream = timer->data;
    end(stream, stream->err, stream->why.text);
}

static void end_later(struct rb_stream *stream, int err, const char *what)
{
    stream->err = rb_why_set(&stream->why, err, "%s", what);
    uv_timer_start(&stream->later, on_later, 0, 0);
}

void rb_stream_close(struct rb_stream *stream)
{
    if (!stream || stream->closed)
        return;
    stream->closed = true;
    if (stream->resolving)
        uv_cancel((uv_req_t *)&stream->resolve);
    uv_close(&stream->socket.handle, on_closed);
    uv_close((uv_handle_t *)&stream->later, on_closed);
}

/* ---- Reading and writing --------------------------------------------------------------------- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct rb_stream *stream = handle->data;
    (void)suggested;
    *ret = uv_buf_init(rb_buffer_reserve(&stream->in, READ), READ);
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buffer)
{
    struct rb_stream *stream = handle->data;
    (void)buffer;
    if (n < 0) {
        end(stream, RB_EPEER, n == UV_EOF ? "the connection was closed" : uv_strerror((int)n));
    } else if (n > 0 && !stream->closed) {
        stream->in.size += (size_t)n;
        stream->events.bytes(stream, &stream->in, stream->context);
    }
}

void rb_stream_pause(struct rb_stream *stream, bool paused)
{
    if (paused == stream->paused)
        return;
    stream->paused = paused;
    if (!stream->connected || stream->ended || stream->closed)
        return;
    if (paused)
        uv_read_stop(&stream->socket.stream);
    else
        uv_read_start(&stream->socket.stream, on_room, on_read);
}

static void on_written(uv_write_t *request, int status)
{
    struct write *write = (struct write *)request;
    struct rb_stream *stream = write->stream;
    free(write->bytes);
    free(write);
    if (stream->closed)
        return;
    if (status < 0)
        end(stream, RB_EPEER, uv_strerror(status));
    else if (stream->events.drained && !rb_stream_pending(stream))
        stream->events.drained(stream, stream->context);
}

void rb_stream_write(struct rb_stream *stream, struct rb_buffer *bytes)
{
    if (stream->closed || stream->ended || !bytes->size) {
        rb_buffer_clear(bytes);
        return;
    }
    if (!stream->connected) {
        rb_buffer_add(&stream->waiting, bytes->data, bytes->size);
        rb_buffer_clear(bytes);
        return;
    }
    struct write *write = rb_alloc(sizeof(*write));
    size_t size = bytes->size;
    write->stream = stream;
    write->bytes = rb_buffer_take(bytes);
    uv_buf_t buffer = uv_buf_init(write->bytes, (unsigned)size);
    int status = uv_write(&write->request, &stream->socket.stream, &buffer, 1, on_written);
    if (status < 0) {
        free(write->bytes);
        free(write);
        end_later(stream, RB_EPEER, uv_strerror(status));
    }
}

size_t rb_stream_pending(const struct rb_stream *stream)
{
    return stream->waiting.size + uv_stream_get_write_queue_size(&stream->socket.stream);
}

pid_t rb_stream_peer(const struct rb_stream *stream)
{
    struct ucred who;
    socklen_t size = sizeof(who);
    int fd;
    if (stream->socket.handle.type != UV_NAMED_PIPE || uv_fileno(&stream->socket.handle, &fd) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size))
        return 0;
    return who.pid;
}

/* ---- Connecting ------------------------------------------------------------------------------ */

static void begin(struct rb_stream *stream)
{
    stream->connected = true;
    if (!stream->paused)
        uv_read_start(&stream->socket.stream, on_room, on_read);
    rb_stream_write(stream, &stream->waiting);
}

static void on_connect(uv_connect_t *connect, int status)
{
    struct rb_stream *stream = connect->data;
    if (stream->closed)
        return;
    if (status < 0) {
        end(stream, RB_EUNREACHABLE, uv_strerror(status));
        return;
    }
    begin(stream);
    if (stream->events.connected)
        stream->events.connected(stream, stream->context);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *found)
{
    struct rb_stream *stream = resolve->data;
    stream->resolving = false;
    if (stream->closed) {
        release(stream);
    } else {
        if (!status)
            status =
                uv_tcp_connect(&stream->connect, &stream->socket.tcp, found->ai_addr, on_connect);
        if (status < 0)
            end(stream, RB_EUNREACHABLE, uv_strerror(status));
    }
    uv_freeaddrinfo(found);
}

/* "HOST:PORT" or "[HOST]:PORT" cut in two. */
static int split(const char *text, char *host, size_t room, const char **ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!length || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || atoi(colon + 1) > 65535)
        return RB_EINVAL;
    if (text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length >= room)
        return RB_EINVAL;
    memcpy(host, text, length);
    host[length] = 0;
    *ret_port = colon + 1;
    return RB_OK;
}

static struct rb_stream *new_stream(uv_loop_t *loop, const char *address, bool tcp)
{
    struct rb_stream *stream = rb_alloc(sizeof(*stream));
    stream->address = rb_string(address);
    if (tcp)
        uv_tcp_init(loop, &stream->socket.tcp);
    else
        uv_pipe_init(loop, &stream->socket.pipe, 0);
    uv_timer_init(loop, &stream->later);
    stream->socket.handle.data = stream->later.data = stream;
    stream->connect.data = stream->resolve.data = stream;
    stream->handles = 2;
    return stream;
}

static void connect_tcp(struct rb_stream *stream, uv_loop_t *loop, const char *where)
{
    char host[256];
    const char *port;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (split(where, host, sizeof(host), &port)) {
        end_later(stream, RB_EINVAL, "not HOST:PORT");
        return;
    }
    int status = uv_getaddrinfo(loop, &stream->resolve, on_resolved, host, port, &hints);
    stream->resolving = !status;
    if (status)
        end_later(stream, RB_EUNREACHABLE, uv_strerror(status));
}

struct rb_stream *rb_stream_connect(uv_loop_t *loop, const char *address,
                                    const struct rb_stream_events *events, void *context)
{
    bool tcp = !strncmp(address, "tcp:", 4), local = !strncmp(address, "unix:", 5);
    struct rb_stream *stream = new_stream(loop, address, tcp);
    stream->events = *events;
    stream->context = context;
    if (tcp)
        connect_tcp(stream, loop, address + 4);
    else if (local && strlen(address + 5) <= PATH_MOST)
        uv_pipe_connect(&stream->connect, &stream->socket.pipe, address + 5, on_connect);
    else
        end_later(stream, RB_EINVAL, "neither unix:PATH nor tcp:HOST:PORT");
    return stream;
}

/* ---- Listening ------------------------------------------------------------------------------- */

struct rb_listen {
    union socket socket;
    char *address;
    void (*accepted)(struct rb_stream *stream, void *context);
    void *context;
};

static void on_connection(uv_stream_t *handle, int status)
{
    struct rb_listen *listen = handle->data;
    if (status < 0)
        return;
    bool tcp = handle->type == UV_TCP;
    struct rb_stream *stream = new_stream(handle->loop, listen->address, tcp);
    if (uv_accept(handle, &stream->socket.stream)) {
        rb_stream_close(stream);
        return;
    }
    listen->accepted(stream, listen->context);
}

void rb_stream_set(struct rb_stream *stream, const struct rb_stream_events *events, void *context)
{
    stream->events = *events;
    stream->context = context;
    if (!stream->connected)
        begin(stream);
}

/* Does a living process listen there? */
static bool alive(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true;
    memcpy(to.sun_path, path, strlen(path));
    bool refused = connect(fd, (struct sockaddr *)&to, sizeof(to)) && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static int bind_unix(struct rb_listen *listen, const char *path, struct rb_why *why)
{
    if (strlen(path) > PATH_MOST)
        return rb_why_set(why, RB_ELIMIT, "the path of the socket is longer than %d bytes: %s",
                          (int)PATH_MOST, path);
    int status = uv_pipe_bind(&listen->socket.pipe, path);
    if (status == UV_EADDRINUSE && !alive(path)) {
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
    if (split(where, host, sizeof(host), &port))
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
    int chosen = ntohs(six ? ((struct sockaddr_in6 *)&address)->sin6_port
                           : ((struct sockaddr_in *)&address)->sin_port);
    snprintf(ret_address, 128, six ? "tcp:[%s]:%d" : "tcp:%s:%d", host, chosen);
    return RB_OK;
}

static void on_listen_closed(uv_handle_t *handle)
{
    struct rb_listen *listen = handle->data;
    free(listen->address);
    free(listen);
}

void rb_listen_close(struct rb_listen *listen)
{
    if (listen && !uv_is_closing(&listen->socket.handle))
        uv_close(&listen->socket.handle, on_listen_closed);
}

int rb_stream_listen(uv_loop_t *loop, const char *address,
                     void (*accepted)(struct rb_stream *stream, void *context), void *context,
                     char *ret_address, struct rb_listen **ret_listen, struct rb_why *why)
{
    bool tcp = !strncmp(address, "tcp:", 4);
    if (!tcp && strncmp(address, "unix:", 5))
        return rb_why_set(why, RB_EINVAL, "'%s' is neither unix:PATH nor tcp:HOST:PORT", address);
    struct rb_listen *listen = rb_alloc(sizeof(*listen));
    listen->accepted = accepted;
    listen->context = context;
    if (tcp)
        uv_tcp_init(loop, &listen->socket.tcp);
    else
        uv_pipe_init(loop, &listen->socket.pipe, 0);
    listen->socket.handle.data = listen;
    snprintf(ret_address, 128, "%s", address);
    int err =
        tcp ? bind_tcp(listen, address + 4, ret_address, why) : bind_unix(listen, address + 5, why);
    listen->address = rb_string(address);
    int status = err ? 0 : uv_listen(&listen->socket.stream, 64, on_connection);
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
