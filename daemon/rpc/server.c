/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/server.h"

#include "base/arena.h"
#include "daemon/etcd/store.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"

#include <stdlib.h>
#include <string.h>

enum {
    HOPS_MOST = 3,
    LEADER_WAIT_MS = 10000, /* a call for the coordinator waits so long for one to be there */
    LEADER_LOOK_MS = 50,
};

/* ---- Connections ----------------------------------------------------------------------------- */

static void connection_close(struct rb_connection *connection)
{
    if (connection->request)
        connection->request->connection = NULL;
    *connection->self = connection->next;
    if (connection->next)
        connection->next->self = connection->self;
    rb_stream_close(connection->stream);
    free(connection);
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
    if (!err)
        request = rb_request_new(connection->server, (Rb__Call *)message, &why);
    if (!request) {
        refuse(connection, err ? err : RB_EINVAL, &why);
        return;
    }
    connection->request = request;
    request->connection = connection;
    rb_server_dispatch(request);
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

/* ---- Where a call is served ------------------------------------------------------------------ */

static const struct method *find_method(const struct rb_server *server, const char *name)
{
    for (const struct method *method = server->methods; method; method = method->next)
        if (!strcmp(method->method->name, name))
            return method;
    return NULL;
}

static void serve(struct rb_request *request, const struct method *method)
{
    method->method->handle(request, method->context);
}

/* The node that a request is for; NULL while there is no coordinator. */
static const char *target(const struct rb_request *request, bool leader)
{
    const struct rb_server *server = request->server;
    if (!leader)
        return request->node ? request->node : server->node;
    const struct rb_facts *facts = rb_store_facts(server->store);
    return facts->leader.message ? facts->leader.leader->node : NULL;
}

static void look_every(struct rb_server *server, uint64_t ms);

/* A coordinator that is stopped or cut off never answers, and nobody closes its connections. */
static void follow_coordinator(struct rb_request *request)
{
    request->coordinator = rb_store_facts(request->server->store)->leader.created;
    if (request->coordinator != request->asked)
        request->deadline = 0; /* each has its time */
    request->asked = request->coordinator;
    look_every(request->server, LEADER_LOOK_MS);
}

static bool has_lost_coordinator(const struct rb_request *request)
{
    const struct rb_facts *facts = rb_store_facts(request->server->store);

    return request->forward && request->coordinator && facts->leader.message &&
           facts->leader.created != request->coordinator;
}

/* At most LEADER_WAIT_MS for any, and for each that is there. */
static void wait_for_coordinator(struct rb_request *request)
{
    if (!request->deadline)
        request->deadline = uv_now(request->server->loop) + LEADER_WAIT_MS;
    rb_server_wait(request, LEADER_LOOK_MS);
}

void rb_server_seek(struct rb_request *request, const struct rb_why *why)
{
    request->unreached = *why;
    free(request->node);
    request->node = rb_string("leader");
    request->coordinator = 0;
    wait_for_coordinator(request);
}

void rb_server_dispatch(struct rb_request *request)
{
    struct rb_server *server = request->server;
    const struct method *method = find_method(server, request->method);
    bool leader = (request->node && !strcmp(request->node, "leader")) ||
                  (method && method->method->at_leader);
    const char *node = target(request, leader);
    if (!method && (!request->node || (node && !strcmp(node, server->node)))) {
        rb_request_failf(request, RB_EUNSUPPORTED, "no such method: %s", request->method);
    } else if (!node) {
        wait_for_coordinator(request);
    } else if (!strcmp(node, server->node)) {
        serve(request, method);
    } else if (request->hops >= HOPS_MOST) {
        rb_request_failf(request, RB_EUNREACHABLE,
                         "the coordinator is changing hands; try again in a moment");
    } else {
        if (leader)
            follow_coordinator(request);
        rb_request_forward(request, node, NULL, NULL);
    }
}

static struct rb_request *next_waiting(struct rb_server *server)
{
    for (struct rb_request *request = server->requests; request; request = request->next)
        if ((request->waiting || has_lost_coordinator(request)) && request->looked != server->round)
            return request;
    return NULL;
}

static bool needs_looks(const struct rb_server *server)
{
    for (const struct rb_request *request = server->requests; request; request = request->next)
        if (request->waiting || (request->forward && request->coordinator))
            return true;
    return false;
}

/* Nobody can be asked, or who was is as absent as before. */
static bool is_too_late(const struct rb_request *request)
{
    const struct rb_facts *facts = rb_store_facts(request->server->store);

    return request->deadline && uv_now(request->server->loop) >= request->deadline &&
           (!facts->leader.message || facts->leader.created == request->asked);
}

static void give_up(struct rb_request *request)
{
    if (request->unreached.text[0])
        rb_request_failf(request, RB_EUNREACHABLE, "the coordinator cannot be reached: %s",
                         request->unreached.text);
    else
        rb_request_failf(request, RB_EUNREACHABLE,
                         "there is no coordinator (is etcd reachable?); try again later");
}

/* Another one coordinates, and the one that was asked has not answered. */
static void lose_coordinator(struct rb_request *request)
{
    struct rb_why why = {0};

    if (rb_client_reached(request->forward)) {
        rb_request_failf(request, RB_EUNREACHABLE,
                         "node %s coordinated and has not answered; another one does now. What "
                         "was asked for may have been done: look before you ask again",
                         request->node);
        return;
    }
    rb_client_cancel(RB_TAKE(request->forward));
    rb_why_set(&why, RB_EUNREACHABLE, "node %s did not answer", request->node);
    rb_server_seek(request, &why);
}

/* Look once at each request that waits for a coordinator, to be started at all, or for an answer of
 * one that coordinates no more. */
static void look_again(uv_timer_t *timer)
{
    struct rb_server *server = timer->data;
    server->round++;
    for (struct rb_request *request; (request = next_waiting(server));) {
        request->looked = server->round;
        if (has_lost_coordinator(request)) {
            lose_coordinator(request);
            continue;
        }
        request->waiting = false;
        if (rb_request_gone(request)) /* nobody wants it any more */
            rb_request_failf(request, RB_ECANCELED, "the caller has hung up");
        else if (is_too_late(request))
            give_up(request);
        else
            rb_server_dispatch(request);
    }
    if (!needs_looks(server))
        uv_timer_stop(timer);
}

static void look_every(struct rb_server *server, uint64_t ms)
{
    if (!uv_is_active((uv_handle_t *)&server->timer) || uv_timer_get_due_in(&server->timer) > ms)
        uv_timer_start(&server->timer, look_again, ms, LEADER_LOOK_MS);
}

void rb_server_wait(struct rb_request *request, uint64_t ms)
{
    request->waiting = true;
    look_every(request->server, ms);
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
    int err = rb_stream_listen(server->loop, address, on_accepted, server, ret_address,
                               &server->listens[server->n_listens], why);
    if (!err)
        server->n_listens++;
    return err;
}

void rb_server_close(struct rb_server *server)
{
    while (server->n_listens)
        rb_listen_close(server->listens[--server->n_listens]);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_server *server = handle->data;
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
