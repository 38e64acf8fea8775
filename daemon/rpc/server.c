/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/server.h"

#include "base/arena.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"
#include "proto/tls.h"

#include <stdlib.h>
#include <string.h>

/* ---- Connections ----------------------------------------------------------------------------- */

/* What was being sent to it ends. */
static void connection_close(struct rb_connection *connection)
{
    struct rb_request *request = connection->request;
    if (request)
        request->connection = NULL;
    *connection->self = connection->next;
    if (connection->next)
        connection->next->self = connection->self;
    rb_stream_close(connection->stream);
    free(connection);
    if (request)
        rb_request_drained(request);
}

static void on_bytes(struct rb_stream *stream, struct rb_buffer *in, void *context)
{
    struct rb_connection *connection = context;
    (void)stream;
    connection->in = in;
    if (connection->refused || (connection->request && in->size > RB_FRAME_LIMIT))
        connection_close(connection);
    else
        rb_connection_next(connection);
}

static void on_drained(struct rb_stream *stream, void *context)
{
    struct rb_connection *connection = context;
    (void)stream;
    if (connection->refused)
        connection_close(connection);
    else if (connection->request)
        rb_request_drained(connection->request);
}

static void on_ended(struct rb_stream *stream, int err, const struct rb_why *why, void *context)
{
    (void)stream;
    (void)err;
    (void)why;
    connection_close(context);
}

static const struct rb_stream_events connection_events = {
    .bytes = on_bytes,
    .drained = on_drained,
    .ended = on_ended,
};

static void on_accepted(struct rb_stream *stream, void *context)
{
    struct rb_server *server = context;
    struct rb_connection *connection = rb_alloc(sizeof(*connection));
    connection->server = server;
    connection->stream = stream;
    connection->next = server->connections;
    connection->self = &server->connections;
    if (connection->next)
        connection->next->self = &connection->next;
    server->connections = connection;
    rb_stream_set(stream, &connection_events, connection);
}

/* Say what is wrong with a call that is none, and hang up behind it. */
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

static void take_call(struct rb_connection *connection)
{
    struct rb_why why = {0};
    ProtobufCMessage *message = NULL;
    int err = rb_frame_take(connection->in, RB_FRAME_CALL, &rb__call__descriptor, &message, &why);
    if (err == RB_EAGAIN) {
        connection->hungry = true;
        return;
    }
    struct rb_request *request = NULL;
    if (!err && connection->server->closing) {
        rb__call__free_unpacked((Rb__Call *)message, NULL);
        refuse(connection, rb_why_set(&why, RB_EAGAIN, "this rubatod is stopping"), &why);
        return;
    }
    if (!err)
        request = rb_request_new(connection->server, (Rb__Call *)message, &why);
    if (!request) {
        refuse(connection, err ? err : RB_EINVAL, &why);
        return;
    }
    connection->request = request;
    request->connection = connection;
    rb_dispatch(request);
}

/* One call at a time on a connection; what comes behind it waits in `in`. */
void rb_connection_next(struct rb_connection *connection)
{
    if (connection->busy || !connection->in)
        return;
    connection->busy = true;
    connection->hungry = false;
    while (!connection->request && !connection->refused && !connection->hungry)
        take_call(connection);
    connection->busy = false;
}

/* ---- Life ------------------------------------------------------------------------------------ */

struct rb_server *rb_server_new(uv_loop_t *loop, struct rb_store *store, const char *node)
{
    struct rb_server *server = rb_alloc(sizeof(*server));
    server->loop = loop;
    server->store = store;
    server->node = rb_string(node);
    uv_timer_init(loop, &server->timer);
    server->timer.data = server;
    return server;
}

void rb_server_secure(struct rb_server *server, struct rb_tls *tls)
{
    server->tls = tls;
}

void rb_server_add(struct rb_server *server, const struct rb_server_method *methods, void *context)
{
    for (; methods->name; methods++) {
        struct method *method = rb_alloc(sizeof(*method));
        method->method = methods;
        method->context = context;
        method->next = server->methods;
        server->methods = method;
    }
}

int rb_server_listen(struct rb_server *server, const char *address, char *ret_address,
                     struct rb_why *why)
{
    if (server->n_listens == RB_COUNT(server->listens))
        return rb_why_set(why, RB_ELIMIT, "too many addresses to listen on");
    int err = rb_stream_listen(server->loop, address, server->tls, on_accepted, server, ret_address,
                               &server->listens[server->n_listens], why);
    if (!err)
        server->n_listens++;
    return err;
}

void rb_server_close(struct rb_server *server)
{
    server->closing = true;
    while (server->n_listens)
        rb_listen_close(server->listens[--server->n_listens]);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_server *server = handle->data;
    rb_tls_free(server->tls);
    free(server->node);
    free(server);
}

void rb_server_free(struct rb_server *server)
{
    if (!server)
        return;
    rb_server_close(server);
    while (server->connections)
        connection_close(server->connections);
    while (server->calls)
        rb_client_cancel(server->calls);
    while (server->requests)
        rb_request_free(server->requests);
    for (struct method *method; (method = server->methods);) {
        server->methods = method->next;
        free(method);
    }
    uv_close((uv_handle_t *)&server->timer, on_closed);
}
