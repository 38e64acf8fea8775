/* SPDX-License-Identifier: Apache-2.0 */
/* Where a call is served: here, at the node that it names, or at the coordinator, whichever node
 * that is once it can be reached. */
#include "base/arena.h"
#include "daemon/etcd/store.h"
#include "daemon/rpc/request.h"

#include <stdlib.h>
#include <string.h>

enum {
    HOPS_MOST = 3,
    LEADER_WAIT_MS = 10000, /* a call for the coordinator waits so long for one to be there */
    LEADER_LOOK_MS = 50,
};

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
        request->deadline = 0; /* each coordinator has its time */
    request->asked = request->coordinator;
    look_every(request->server, LEADER_LOOK_MS);
}

static bool has_lost_coordinator(const struct rb_request *request)
{
    const struct rb_facts *facts = rb_store_facts(request->server->store);

    return request->forward && request->coordinator && facts->leader.message &&
           facts->leader.created != request->coordinator;
}

/* Wait at most LEADER_WAIT_MS for any coordinator, and for each that is there. */
static void wait_for_coordinator(struct rb_request *request)
{
    if (!request->deadline)
        request->deadline = uv_now(request->server->loop) + LEADER_WAIT_MS;
    rb_dispatch_later(request, LEADER_LOOK_MS);
}

static bool only_reads(const struct rb_request *request)
{
    const struct method *method = find_method(request->server, request->method);

    return method && method->method->reads;
}

bool rb_dispatch_may_repeat(const struct rb_request *request)
{
    return only_reads(request) && !request->begun && !request->lost;
}

void rb_dispatch_again(struct rb_request *request, const struct rb_why *why)
{
    request->unreached = *why;
    free(request->node);
    request->node = rb_string("leader");
    request->coordinator = 0;
    wait_for_coordinator(request);
}

/* A node that coordinated until it stood still finds requests that other nodes sent it meanwhile.
 * Those nodes have given them up, and told their callers so. */
static bool was_given_up(const struct rb_request *request)
{
    return request->hops && request->connection && rb_stream_over(request->connection->stream);
}

void rb_dispatch(struct rb_request *request)
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
    } else if (leader && was_given_up(request)) {
        rb_request_failf(request, RB_ECANCELED, "the caller has hung up");
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

/* The time is over, and there is no coordinator, or only the one that was asked in vain. */
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

/* Another node coordinates, and the one that was asked has not answered. */
static void lose_coordinator(struct rb_request *request)
{
    struct rb_why why = {0};

    if (request->begun) {
        rb_request_failf(request, RB_EUNREACHABLE,
                         "node %s coordinated and has not answered in full; another one does now: "
                         "ask again",
                         request->node);
        return;
    }
    if (rb_client_reached(request->forward) && !only_reads(request)) {
        rb_request_failf(request, RB_EUNREACHABLE,
                         "node %s coordinated and has not answered; another one does now. What "
                         "was asked for may have been done: look before you ask again",
                         request->node);
        return;
    }
    rb_client_cancel(RB_TAKE(request->forward));
    rb_why_set(&why, RB_EUNREACHABLE, "node %s did not answer", request->node);
    rb_dispatch_again(request, &why);
}

/* Look once at each request that waits for a coordinator, to be started at all, or for an answer of
 * a node that coordinates no more. */
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
            rb_dispatch(request);
    }
    if (!needs_looks(server))
        uv_timer_stop(timer);
}

static void look_every(struct rb_server *server, uint64_t ms)
{
    if (!uv_is_active((uv_handle_t *)&server->timer) || uv_timer_get_due_in(&server->timer) > ms)
        uv_timer_start(&server->timer, look_again, ms, LEADER_LOOK_MS);
}

void rb_dispatch_later(struct rb_request *request, uint64_t ms)
{
    request->waiting = true;
    look_every(request->server, ms);
}
