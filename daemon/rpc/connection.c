/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of callers: which may stay, which are answered, and what is taken of what they say.
 */
#include "base/arena.h"
#include "base/log.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"

#include <stdlib.h>

enum {
    HELD_UP = 10, /* times as long for a rubatod: its own caller may hold it up */
    TELL_MS = 60000,
    BEHIND_MOST = 64 << 10, /* read of what comes behind a call that is not answered */
};

static void take_call(struct rb_connection *connection);

static void count_half(struct rb_connection *connection, size_t size)
{
    connection->server->half += size - connection->half;
    connection->half = size;
}

void rb_connection_close(struct rb_connection *connection)
{
    struct rb_server *server = connection->server;
    struct rb_request *request = connection->request;
    if (request) {
        request->connection = NULL;
        request->left = true;
    }
    *connection->self = connection->next;
    if (connection->next)
        connection->next->self = connection->self;
    count_half(connection, 0);
    server->n_asked -= connection->asked && !request;
    if (--server->n_connections <= server->most / 4)
        server->told = false;
    rb_stream_close(connection->stream);
    free(connection);
    if (request)
        rb_request_left(request);
}

static void on_bytes(struct rb_stream *stream, struct rb_buffer *in, void *context)
{
    struct rb_connection *connection = context;
    (void)stream;
    connection->in = in;
    if (connection->forgets)
        rb_buffer_clear(in);
    else if (connection->refused)
        rb_connection_close(connection);
    else if (!connection->asked)
        take_call(connection);
    else if (in->size > BEHIND_MOST)
        rb_stream_pause(connection->stream, true);
}

/* Go on with what has come behind the call. */
static void answered(struct rb_connection *connection)
{
    connection->asked = false;
    connection->server->n_asked--;
    rb_stream_expect(connection->stream, connection->server->stalled_ms);
    rb_stream_pause(connection->stream, false);
    take_call(connection);
}

static void on_drained(struct rb_stream *stream, void *context)
{
    struct rb_connection *connection = context;
    (void)stream;
    if (connection->forgets)
        return;
    if (connection->refused)
        rb_connection_close(connection);
    else if (connection->request)
        rb_request_drained(connection->request);
    else if (connection->asked)
        answered(connection);
}

/* A user whose answer has broken off asks why; for any number of them a line once in a while is
 * enough. */
static void tell_deaf(struct rb_server *server, const struct rb_why *why)
{
    const uint64_t now = uv_now(server->loop);
    if (now < server->tell)
        return;
    server->tell = now + TELL_MS;
    rb_log(RB_LOG_WARN, "hung up on a caller of RPC: %s", why->text);
}

static void on_ended(struct rb_stream *stream, int err, const struct rb_why *why, void *context)
{
    struct rb_connection *connection = context;
    (void)stream;
    if (err == RB_ETIMEOUT)
        tell_deaf(connection->server, why);
    rb_connection_close(connection);
}

static const struct rb_stream_events connection_events = {
    .bytes = on_bytes,
    .drained = on_drained,
    .ended = on_ended,
};

static void tell_full(struct rb_server *server)
{
    if (!server->told)
        rb_log(
            RB_LOG_WARN,
            "RPC has %zu connections, %zu of them with calls under way; %zu and %zu are the most: "
            "idle connections are closed, further calls are refused",
            server->n_connections, server->n_asked, server->most, server->most / 2);
    server->told = true;
}

/* The oldest connection that asks nothing gives way; one in the middle of a call only where there
 * is no other.  There is one: at most half of all have asked. */
static void make_room(struct rb_server *server)
{
    struct rb_connection *oldest = NULL;
    bool oldest_began = true;
    tell_full(server);
    for (struct rb_connection *one = server->connections; one; one = one->next) {
        const bool began = one->in && one->in->size;
        if (one->asked || began > oldest_began)
            continue;
        oldest = one;
        oldest_began = began;
    }
    if (oldest)
        rb_connection_close(oldest);
}

void rb_connection_accept(struct rb_stream *stream, void *context)
{
    struct rb_server *server = context;
    if (server->n_connections >= server->most)
        make_room(server);
    struct rb_connection *connection = rb_alloc(sizeof(*connection));
    connection->server = server;
    connection->stream = stream;
    connection->next = server->connections;
    connection->self = &server->connections;
    if (connection->next)
        connection->next->self = &connection->next;
    server->connections = connection;
    server->n_connections++;
    rb_stream_set(stream, &connection_events, connection);
    rb_stream_expect(stream, server->silent_ms);
    rb_stream_expect_taken(stream, server->deaf_ms);
}

/* Say why a call is not taken, and hang up behind it. */
static void refuse(struct rb_connection *connection, int err, const struct rb_why *why)
{
    struct rb_buffer out = {0};
    Rb__Reply reply = RB__REPLY__INIT;
    reply.error = err;
    reply.why = (char *)why->text;
    rb_frame_put(&out, RB_FRAME_REPLY, &reply.base);
    rb_stream_write(connection->stream, &out);
    rb_buffer_done(&out);
    connection->refused = true;
}

/* A caller in the middle of a call hears the refusal only when it has sent all of the call: so the
 * rest is read, and dropped. */
static void refuse_half(struct rb_connection *connection)
{
    struct rb_why why = {0};
    int err = rb_why_set(&why, RB_EAGAIN,
                         "calls that are not whole yet take %zu MiB of this rubatod, as many as "
                         "they may, and this is the largest: %zu MiB of it have come",
                         connection->server->half >> 20, connection->half >> 20);
    refuse(connection, err, &why);
    connection->forgets = true;
    count_half(connection, 0);
    rb_buffer_done(connection->in);
    rb_stream_expect(connection->stream, connection->server->silent_ms);
}

/* More of a call has come, and not all of it.  Where such parts are too large in all, the largest
 * is refused, so that small calls come through whatever others do. */
static void wait_for_rest(struct rb_connection *connection)
{
    struct rb_server *server = connection->server;
    rb_stream_expect(connection->stream, server->stalled_ms);
    count_half(connection, connection->in->size);
    while (server->half > server->half_most) {
        struct rb_connection *largest = connection;
        for (struct rb_connection *one = server->connections; one; one = one->next)
            if (one->half > largest->half)
                largest = one;
        refuse_half(largest);
    }
}

/* A large call is gone, and its memory goes, too. */
static void fit(struct rb_buffer *in)
{
    struct rb_buffer left = {0};
    if (in->room <= 2 * BEHIND_MOST)
        return;
    rb_buffer_add(&left, in->data, in->size);
    rb_buffer_done(in);
    *in = left;
}

/* Give the connection a place among those that are answered, if there is one. */
static int ask(struct rb_connection *connection, struct rb_why *why)
{
    struct rb_server *server = connection->server;
    if (server->closing)
        return rb_why_set(why, RB_EAGAIN, "this rubatod is stopping");
    if (server->n_asked >= server->most / 2) {
        tell_full(server);
        return rb_why_set(why, RB_EAGAIN, "this rubatod answers %zu others, as many as it can",
                          server->n_asked);
    }
    connection->asked = true;
    server->n_asked++;
    rb_stream_expect(connection->stream, 0);
    return RB_OK;
}

/* Take one call at a time on a connection, when the answer to the last one is on its way: so a
 * caller that asks much at once neither keeps others waiting nor has more answers than it takes. */
static void take_call(struct rb_connection *connection)
{
    struct rb_why why = {0};
    ProtobufCMessage *message = NULL;
    int err = rb_frame_take(connection->in, RB_FRAME_CALL, &rb__call__descriptor, &message, &why);
    if (err == RB_EAGAIN) {
        wait_for_rest(connection);
        return;
    }
    count_half(connection, 0);
    fit(connection->in);
    struct rb_request *request = NULL;
    if (!err && (err = ask(connection, &why)))
        rb__call__free_unpacked((Rb__Call *)message, NULL);
    if (!err)
        request = rb_request_new(connection->server, (Rb__Call *)message, &why);
    if (!request) {
        refuse(connection, err ? err : RB_EINVAL, &why);
        return;
    }
    connection->request = request;
    request->connection = connection;
    rb_stream_expect_taken(connection->stream,
                           connection->server->deaf_ms * (request->hops ? HELD_UP : 1));
    rb_dispatch(request);
}
