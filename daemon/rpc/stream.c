/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/stream_inside.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { READ = 64 << 10 };

static const char closed[] = "the connection was closed";

struct write {
    uv_write_t request;
    struct rb_stream *stream;
    char *bytes;
};

/* ---- Streams --------------------------------------------------------------------------------- */

void rb_stream_socket_init(union rb_stream_socket *socket, uv_loop_t *loop, bool tcp)
{
    if (tcp)
        uv_tcp_init(loop, &socket->tcp);
    else
        uv_pipe_init(loop, &socket->pipe, 0);
}

struct rb_stream *rb_stream_new(uv_loop_t *loop, const char *address, bool tcp)
{
    struct rb_stream *stream = rb_alloc(sizeof(*stream));
    stream->address = rb_string(address);
    rb_stream_socket_init(&stream->socket, loop, tcp);
    uv_timer_init(loop, &stream->later);
    uv_timer_init(loop, &stream->take);
    stream->socket.handle.data = stream->later.data = stream->take.data = stream;
    stream->connect.data = stream->resolve.data = stream;
    stream->handles = 3;
    return stream;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void rb_stream_release(struct rb_stream *stream)
{
    if (stream->handles || stream->resolving)
        return;
    rb_buffer_done(&stream->in);
    rb_buffer_done(&stream->waiting);
    rb_stream_tls_free(stream->tls);
    free(stream->address);
    free(stream);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_stream *stream = handle->data;
    stream->handles--;
    rb_stream_release(stream);
}

void rb_stream_end(struct rb_stream *stream, int err, const char *what)
{
    if (stream->ended || stream->closed)
        return;
    stream->ended = true;
    uv_read_stop(&stream->socket.stream);
    struct rb_why why = {0};
    rb_why_set(&why, err, "%s: %s", stream->address, what);
    stream->events.ended(stream, err, &why, stream->context);
}

static void on_later(uv_timer_t *timer)
{
    struct rb_stream *stream = timer->data;
    rb_stream_end(stream, stream->err, stream->why.text);
}

void rb_stream_end_later(struct rb_stream *stream, int err, const char *what)
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
    uv_close((uv_handle_t *)&stream->take, on_closed);
}

/* ---- Reading and writing --------------------------------------------------------------------- */

static void begin(struct rb_stream *stream);

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *ret)
{
    struct rb_stream *stream = handle->data;
    struct rb_buffer *to = stream->tls ? &stream->tls->came : &stream->in;
    (void)suggested;
    *ret = uv_buf_init(rb_buffer_reserve(to, READ), READ);
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
        rb_stream_end(stream, RB_EPEER, uv_strerror(status));
    else if (stream->events.drained && !rb_stream_pending(stream))
        stream->events.drained(stream, stream->context);
}

static void put(struct rb_stream *stream, struct rb_buffer *bytes)
{
    if (!bytes->size)
        return;
    struct write *write = rb_alloc(sizeof(*write));
    size_t size = bytes->size;
    write->stream = stream;
    write->bytes = rb_buffer_take(bytes);
    uv_buf_t buffer = uv_buf_init(write->bytes, (unsigned)size);
    int status = uv_write(&write->request, &stream->socket.stream, &buffer, 1, on_written);
    if (status < 0) {
        free(write->bytes);
        free(write);
        rb_stream_end_later(stream, RB_EPEER, uv_strerror(status));
    } else {
        rb_stream_written(stream, size);
    }
}

/* Go on with the sealed bytes that have come. */
static void move_sealed(struct rb_stream *stream)
{
    struct rb_why why = {0};
    const size_t known = stream->in.size;
    int err = rb_stream_tls_move(stream->tls, &stream->in, &why);
    put(stream, &stream->tls->goes);
    if (!stream->connected && stream->tls->stands) {
        begin(stream);
        if (stream->events.connected)
            stream->events.connected(stream, stream->context);
    }
    if (!stream->closed && stream->in.size > known)
        stream->events.bytes(stream, &stream->in, stream->context);
    if (stream->closed)
        return;
    if (err)
        rb_stream_end(stream, err, why.text);
    else if (stream->tls->ended && !stream->paused)
        rb_stream_end(stream, RB_EPEER, closed);
}

/* A peer that stays silent for too long counts as lost. */
static void on_silence(uv_timer_t *timer)
{
    struct rb_stream *stream = timer->data;
    rb_stream_end(stream, RB_EPEER,
                  stream->connected ? "nothing came in time" : "TLS was not agreed on in time");
}

/* The time begins now; not while TLS is agreed on, which has its own, nor where the stream ends
 * anyway. */
static void expect_more(struct rb_stream *stream)
{
    if (!stream->connected || stream->err)
        return;
    if (stream->expect_ms)
        uv_timer_start(&stream->later, on_silence, stream->expect_ms, 0);
    else
        uv_timer_stop(&stream->later);
}

void rb_stream_expect(struct rb_stream *stream, uint64_t ms)
{
    stream->expect_ms = ms;
    expect_more(stream);
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buffer)
{
    struct rb_stream *stream = handle->data;
    (void)buffer;
    if (n > 0)
        expect_more(stream);
    if (n < 0) {
        rb_stream_end(stream, RB_EPEER, n == UV_EOF ? closed : uv_strerror((int)n));
    } else if (n > 0 && !stream->closed && stream->tls) {
        stream->tls->came.size += (size_t)n;
        move_sealed(stream);
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
    else if (stream->tls && stream->tls->ended)
        rb_stream_end_later(stream, RB_EPEER, closed);
    else
        uv_read_start(&stream->socket.stream, on_room, on_read);
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
    if (!stream->tls) {
        put(stream, bytes);
        return;
    }
    struct rb_why why = {0};
    int err = rb_stream_tls_seal(stream->tls, bytes->data, bytes->size, &why);
    rb_buffer_clear(bytes);
    put(stream, &stream->tls->goes);
    if (err)
        rb_stream_end_later(stream, err, why.text);
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

bool rb_stream_over(const struct rb_stream *stream)
{
    char byte;
    int fd;
    return !uv_fileno(&stream->socket.handle, &fd) && !recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* From now on bytes of the stream's owner come and go. */
static void begin(struct rb_stream *stream)
{
    stream->connected = true;
    expect_more(stream);
    if (stream->paused)
        uv_read_stop(&stream->socket.stream);
    else
        uv_read_start(&stream->socket.stream, on_room, on_read);
    rb_stream_write(stream, &stream->waiting);
}

/* What TLS agrees on first is read also where the stream is paused.  It goes in small pieces that
 * get no answer each, and behind one of them the kernel would hold back the next for 40 ms. */
static void open_up(struct rb_stream *stream)
{
    if (!stream->tls) {
        begin(stream);
        return;
    }
    uv_tcp_nodelay(&stream->socket.tcp, 1);
    uv_timer_start(&stream->later, on_silence, RB_STREAM_GREET_MS, 0);
    uv_read_start(&stream->socket.stream, on_room, on_read);
}

void rb_stream_reached(struct rb_stream *stream)
{
    open_up(stream);
    if (stream->tls)
        move_sealed(stream);
    else if (stream->events.connected)
        stream->events.connected(stream, stream->context);
}

void rb_stream_set(struct rb_stream *stream, const struct rb_stream_events *events, void *context)
{
    stream->events = *events;
    stream->context = context;
    if (!stream->connected)
        open_up(stream);
}
