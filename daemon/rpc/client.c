/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that this rubatod makes: on itself (a request without a connection), or on another. */
#include "base/arena.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"

#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 30000 };

struct rb_client_call {
    struct rb_client_call *next, **self;
    struct rb_server *server;
    struct rb_stream *stream;   /* to another */
    struct rb_request *request; /* on itself, until it is answered */
    uv_timer_t timer;           /* time out; or, once finished, tell */
    uint64_t timeout_ms;
    bool reached;  /* the other has, or may have, the call, */
    bool answered; /* and has said how it went */
    bool paused, abandoned, finished, closed;
    int err;
    struct rb_why why;
    json_t *body;
    void (*piece)(const void *data, size_t size, void *context);
    void (*done)(int err, const struct rb_why *why, const json_t *body, void *context);
    void *context;
};

static void on_closed(uv_handle_t *handle)
{
    struct rb_client_call *call = handle->data;
    json_decref(call->body);
    free(call);
}

/* The answer goes nowhere. */
static void let_go(struct rb_client_call *call)
{
    struct rb_request *request = RB_TAKE(call->request);
    request->local = NULL;
    rb_request_left(request);
}

void rb_client_cancel(struct rb_client_call *call)
{
    if (!call || call->closed)
        return;
    call->closed = true;
    *call->self = call->next;
    if (call->next)
        call->next->self = call->self;
    if (call->request)
        let_go(call);
    rb_stream_close(call->stream);
    uv_close((uv_handle_t *)&call->timer, on_closed);
}

static void tell(uv_timer_t *timer)
{
    struct rb_client_call *call = timer->data;
    call->done(call->err, &call->why, call->err ? NULL : call->body, call->context);
    rb_client_cancel(call);
}

void rb_client_finish(struct rb_client_call *call, int err, const struct rb_why *why, json_t *body)
{
    if (call->finished)
        return;
    call->finished = true;
    call->request = NULL;
    call->err = err;
    if (why)
        call->why = *why;
    call->body = json_incref(body);
    uv_timer_start(&call->timer, tell, 0, 0);
}

static void on_timeout(uv_timer_t *timer)
{
    struct rb_client_call *call = timer->data;
    struct rb_why why = {0};
    if (call->request)
        let_go(call);
    rb_client_finish(call, rb_why_set(&why, RB_ETIMEOUT, "no answer"), &why, NULL);
}

/* A call that is held back is not late. */
static void heard(struct rb_client_call *call)
{
    if (!call->paused)
        uv_timer_start(&call->timer, on_timeout, call->timeout_ms, 0);
}

void rb_client_expect(struct rb_client_call *call, uint64_t timeout_ms)
{
    call->timeout_ms = timeout_ms;
    if (!call->finished)
        heard(call);
}

void rb_client_piece(struct rb_client_call *call, const void *data, size_t size)
{
    heard(call);
    if (call->piece)
        call->piece(data, size, call->context);
}

/* ---- On another ------------------------------------------------------------------------------ */

static void take_reply(struct rb_client_call *call, Rb__Reply *reply)
{
    struct rb_why why = {0};
    call->answered = reply->error || reply->last;
    if (reply->error) {
        int err = reply->error < 0 ? reply->error : RB_EINTERNAL;
        rb_client_finish(call, rb_why_set(&why, err, "%s", reply->why ? reply->why : ""), &why,
                         NULL);
        return;
    }
    if (reply->has_data) {
        rb_client_piece(call, reply->data.data, reply->data.len);
        if (call->closed)
            return;
    }
    if (!reply->last)
        return;
    json_t *body = reply->body ? json_loads(reply->body, 0, NULL) : json_object();
    int err = body ? RB_OK : rb_why_set(&why, RB_EINVAL, "the reply is no JSON");
    rb_client_finish(call, err, &why, body);
    json_decref(body);
}

static void on_bytes(struct rb_stream *stream, struct rb_buffer *in, void *context)
{
    struct rb_client_call *call = context;
    (void)stream;
    while (!call->finished && !call->closed) {
        struct rb_why why = {0};
        ProtobufCMessage *message = NULL;
        int err = rb_frame_take(in, RB_FRAME_REPLY, &rb__reply__descriptor, &message, &why);
        if (err == RB_EAGAIN)
            return;
        if (err) {
            rb_client_finish(call, err, &why, NULL);
            return;
        }
        heard(call);
        take_reply(call, (Rb__Reply *)message);
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

static void on_connected(struct rb_stream *stream, void *context)
{
    struct rb_client_call *call = context;
    (void)stream;
    call->reached = true;
}

static void end_abandoned(struct rb_client_call *call)
{
    struct rb_why why = {0};
    if (!call->closed && call->reached && !rb_stream_pending(call->stream))
        rb_client_finish(call, rb_why_set(&why, RB_ECANCELED, "the caller has hung up"), &why,
                         NULL);
}

static void on_drained(struct rb_stream *stream, void *context)
{
    struct rb_client_call *call = context;
    (void)stream;
    if (call->abandoned)
        end_abandoned(call);
}

static void on_ended(struct rb_stream *stream, int err, const struct rb_why *why, void *context)
{
    (void)stream;
    rb_client_finish(context, err == RB_EINVAL ? err : RB_EUNREACHABLE, why, NULL);
}

static const struct rb_stream_events events = {
    .connected = on_connected,
    .bytes = on_bytes,
    .drained = on_drained,
    .ended = on_ended,
};

bool rb_client_reached(const struct rb_client_call *call)
{
    return call->reached;
}

bool rb_client_answered(const struct rb_client_call *call)
{
    return call->answered;
}

void rb_client_pause(struct rb_client_call *call, bool paused)
{
    call->paused = paused;
    if (!call->finished && paused)
        uv_timer_stop(&call->timer);
    else if (!call->finished)
        heard(call);
    if (call->stream)
        rb_stream_pause(call->stream, paused);
    else if (call->request && call->request->forward) /* it is answered from elsewhere */
        rb_client_pause(call->request->forward, paused);
    else if (call->request && call->request->sending)
        rb_sending_hold(call->request->sending, paused);
}

void rb_client_abandon(struct rb_client_call *call)
{
    call->abandoned = true;
    end_abandoned(call);
}

static struct rb_client_call *new_call(struct rb_server *server,
                                       const struct rb_client_options *options)
{
    struct rb_client_call *call = rb_alloc(sizeof(*call));
    call->server = server;
    call->timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS;
    call->piece = options->piece;
    call->done = options->done;
    call->context = options->context;
    call->next = server->calls;
    call->self = &server->calls;
    if (call->next)
        call->next->self = &call->next;
    server->calls = call;
    uv_timer_init(server->loop, &call->timer);
    call->timer.data = call;
    heard(call);
    return call;
}

struct rb_client_call *rb_client_open(struct rb_server *server, const char *address,
                                      const struct rb_client_options *options)
{
    struct rb_client_call *call = new_call(server, options);
    struct rb_buffer out = {0};
    Rb__Call message = RB__CALL__INIT;
    RB_CLEANUP(rb_freep) char *body = json_dumps(options->body, JSON_COMPACT);
    message.method = (char *)options->method;
    message.body = body;
    message.node = (char *)options->node;
    message.has_hops = true;
    message.hops = options->hops;
    rb_frame_put(&out, RB_FRAME_CALL, &message.base);
    call->stream = rb_stream_connect(server->loop, address, server->tls, &events, call);
    rb_stream_write(call->stream, &out);
    rb_buffer_done(&out);
    json_decref(options->body);
    return call;
}

/* ---- On itself ------------------------------------------------------------------------------- */

struct rb_client_call *rb_server_call(struct rb_server *server,
                                      const struct rb_client_options *options)
{
    struct rb_client_call *call = new_call(server, options);
    struct rb_why why = {0};
    Rb__Call *message = rb_alloc(sizeof(*message));
    rb__call__init(message);
    message->method = rb_string(options->method);
    message->node = options->node ? rb_string(options->node) : NULL;
    message->hops = options->hops;
    struct rb_request *request = rb_request_new(server, message, &why);
    json_decref(request->body);
    request->body = options->body ? options->body : json_object();
    request->local = call;
    call->request = request;
    rb_dispatch_later(request, 0);
    return call;
}
