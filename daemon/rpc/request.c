/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "daemon/etcd/store.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUEUE_MOST = 4 << 20, /* what goes to a caller is held back above this */
    FORWARD_MS = 600000,
};

struct rb_request *rb_request_new(struct rb_server *server, Rb__Call *call, struct rb_why *why)
{
    json_t *body = NULL;
    if (call->body && call->body[0])
        body = json_loads(call->body, JSON_REJECT_DUPLICATES, NULL);
    else
        body = json_object();
    if (!json_is_object(body)) {
        rb_why_set(why, RB_EINVAL, "the body of a call must be a JSON object");
        json_decref(body);
        rb__call__free_unpacked(call, NULL);
        return NULL;
    }
    struct rb_request *request = rb_alloc(sizeof(*request));
    request->server = server;
    request->body = body;
    request->method = rb_string(call->method);
    request->node = call->node && call->node[0] ? rb_string(call->node) : NULL;
    request->hops = call->hops;
    rb__call__free_unpacked(call, NULL);
    request->next = server->requests;
    request->self = &server->requests;
    if (request->next)
        request->next->self = &request->next;
    server->requests = request;
    return request;
}

void rb_request_free(struct rb_request *request)
{
    *request->self = request->next;
    if (request->next)
        request->next->self = request->self;
    request->server->n_asked -= request->left;
    if (request->forward)
        rb_client_cancel(request->forward);
    rb_sending_drop(request->sending);
    json_decref(request->body);
    free(request->method);
    free(request->node);
    free(request);
}

/* ---- What methods see ------------------------------------------------------------------------ */

const json_t *rb_request_body(const struct rb_request *request)
{
    return request->body;
}

int rb_request_string(struct rb_request *request, const char *key, const char **ret,
                      struct rb_why *why)
{
    const char *text = json_string_value(json_object_get(request->body, key));
    if (!text)
        return rb_why_set(why, RB_EINVAL, "%s: '%s' must be a string", request->method, key);
    *ret = text;
    return RB_OK;
}

bool rb_request_gone(const struct rb_request *request)
{
    return !request->connection && !request->local;
}

/* ---- Replies --------------------------------------------------------------------------------- */

static void send_reply(struct rb_request *request, const Rb__Reply *reply)
{
    struct rb_buffer out = {0};
    if (!request->connection)
        return;
    rb_frame_put(&out, RB_FRAME_REPLY, &reply->base);
    rb_stream_write(request->connection->stream, &out);
    rb_buffer_done(&out);
}

static void finish(struct rb_request *request, int err, const struct rb_why *why, json_t *body)
{
    Rb__Reply reply = RB__REPLY__INIT;
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    reply.error = err;
    reply.why = err ? (char *)(why && why->text[0] ? why->text : rb_error_text(err)) : NULL;
    reply.body = text;
    send_reply(request, &reply);
    free(text);
    struct rb_connection *connection = request->connection;
    if (request->local) {
        struct rb_client_call *local = request->local;
        request->local = NULL;
        rb_client_finish(local, err, why, body);
    }
    json_decref(body);
    rb_request_free(request);
    if (connection)
        connection->request = NULL;
}

void rb_request_reply(struct rb_request *request, json_t *body)
{
    finish(request, RB_OK, NULL, body);
}

void rb_request_fail(struct rb_request *request, int err, const struct rb_why *why)
{
    finish(request, err, why, NULL);
}

void rb_request_failf(struct rb_request *request, int err, const char *format, ...)
{
    struct rb_why why;
    va_list args;
    va_start(args, format);
    vsnprintf(why.text, sizeof(why.text), format, args);
    va_end(args);
    finish(request, err, &why, NULL);
}

void rb_request_piece(struct rb_request *request, const void *data, size_t size)
{
    Rb__Reply reply = RB__REPLY__INIT;
    reply.has_data = true;
    reply.data = (ProtobufCBinaryData){size, (uint8_t *)data};
    reply.has_last = true;
    reply.last = false;
    request->begun = true;
    if (request->local)
        rb_client_piece(request->local, data, size);
    else
        send_reply(request, &reply);
}

/* ---- Pieces of others ------------------------------------------------------------------------ */

bool rb_request_is_full(const struct rb_request *request)
{
    return request->connection && rb_stream_pending(request->connection->stream) > QUEUE_MOST;
}

void rb_request_drained(struct rb_request *request)
{
    if (request->sending)
        rb_sending_hold(request->sending, false);
    else if (request->forward)
        rb_client_pause(request->forward, false);
    else if (request->source)
        rb_client_pause(request->source, false);
}

void rb_request_when_gone(struct rb_request *request, void (*gone)(void *context), void *context)
{
    request->gone = gone;
    request->gone_context = context;
}

void rb_request_left(struct rb_request *request)
{
    void (*gone)(void *context) = RB_TAKE(request->gone);
    rb_request_drained(request);
    if (request->forward)
        rb_client_abandon(request->forward);
    if (gone)
        gone(request->gone_context);
}

static void hold_back(struct rb_request *request, struct rb_client_call *source)
{
    if (source && rb_request_is_full(request))
        rb_client_pause(source, true);
}

void rb_request_pass(struct rb_request *request, struct rb_client_call *source, const void *data,
                     size_t size)
{
    request->source = source;
    rb_request_piece(request, data, size);
    hold_back(request, source);
}

void rb_request_passed(struct rb_request *request)
{
    request->source = NULL;
}

/* ---- Forwarding ------------------------------------------------------------------------------ */

static void on_forward_piece(const void *data, size_t size, void *context)
{
    struct rb_request *request = context;
    if (rb_request_gone(request)) { /* the call ends with the request, on the other node, too */
        finish(request, RB_ECANCELED, NULL, NULL);
        return;
    }
    rb_request_piece(request, data, size);
    hold_back(request, request->forward);
}

/* May the request be asked again?  The call on a coordinator has failed, and that is not its
 * answer. */
static bool may_ask_again(struct rb_request *request, int err)
{
    if (!request->coordinator || rb_client_answered(request->forward))
        return false;
    if (!rb_client_reached(request->forward))
        return err == RB_EUNREACHABLE || err == RB_ETIMEOUT;
    if (err != RB_EUNREACHABLE || !rb_dispatch_may_repeat(request))
        return false;
    request->lost = true;
    return true;
}

static void on_forward_done(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct rb_request *request = context;
    bool again = may_ask_again(request, err);
    request->forward = NULL;
    if (again)
        rb_dispatch_again(request, why);
    else
        finish(request, err, why, json_incref((json_t *)body));
}

static const char *address_of(const struct rb_server *server, const char *node)
{
    const struct rb_facts *facts = rb_store_facts(server->store);
    const struct rb_fact *found = rb_fact_find(&facts->nodes, node);
    if (found)
        return found->node->address;
    if (facts->leader.message && !strcmp(facts->leader.leader->node, node))
        return facts->leader.leader->address;
    return NULL;
}

void rb_request_forward(struct rb_request *request, const char *node, const char *method,
                        json_t *body)
{
    struct rb_server *server = request->server;
    char *target = rb_string(node);
    if (method) {
        free(request->method);
        request->method = rb_string(method);
    }
    if (body) {
        json_decref(request->body);
        request->body = body;
    }
    free(request->node);
    request->node = target;
    if (!strcmp(target, server->node) || !strcmp(target, "leader")) {
        rb_dispatch(request);
        return;
    }
    const char *address = address_of(server, target);
    if (!address) {
        rb_request_failf(request, RB_EUNREACHABLE, "node %s is not there", target);
        return;
    }
    struct rb_client_options options = {
        .method = request->method,
        .body = json_incref(request->body),
        .node = target,
        .hops = request->hops + 1,
        .timeout_ms = FORWARD_MS,
        .piece = on_forward_piece,
        .done = on_forward_done,
        .context = request,
    };
    request->forward = rb_client_open(server, address, &options);
}
