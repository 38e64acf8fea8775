/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/stream_inside.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { READ = 64 << 10 };

struct rb_stream {
    union rb_stream_socket socket;
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

int rb_stream_split(const char *text, char *host, size_t room, const char **ret_port)
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

void rb_stream_socket_init(union rb_stream_socket *socket, uv_loop_t *loop, bool tcp)
{
    if (tcp)
        uv_tcp_init(loop, &socket->tcp);
    else
        uv_pipe_init(loop, &socket->pipe, 0);
}

static struct rb_stream *new_stream(uv_loop_t *loop, const char *address, bool tcp)
{
    struct rb_stream *stream = rb_alloc(sizeof(*stream));
    stream->address = rb_string(address);
    rb_stream_socket_init(&stream->socket, loop, tcp);
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
    if (rb_stream_split(where, host, sizeof(host), &port)) {
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
    else if (local && strlen(address + 5) <= RB_STREAM_PATH_MOST)
        uv_pipe_connect(&stream->connect, &stream->socket.pipe, address + 5, on_connect);
    else
        end_later(stream, RB_EINVAL, "neither unix:PATH nor tcp:HOST:PORT");
    return stream;
}

/* ---- Accepting ------------------------------------------------------------------------------- */

struct rb_stream *rb_stream_accept(uv_stream_t *listening, const char *address)
{
    struct rb_stream *stream = new_stream(listening->loop, address, listening->type == UV_TCP);
    if (!uv_accept(listening, &stream->socket.stream))
        return stream;
    rb_stream_close(stream);
    return NULL;
}

void rb_stream_set(struct rb_stream *stream, const struct rb_stream_events *events, void *context)
{
    stream->events = *events;
    stream->context = context;
    if (!stream->connected)
        begin(stream);
}
