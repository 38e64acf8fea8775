/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd waits on an epoll descriptor of its own, and we on that: whatever it has to do is
 * done in MHD_run, which does not block. */
#include "daemon/http/http.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "daemon/agent/agent.h"
#include "daemon/coordinator.h"
#include "daemon/daemon.h"
#include "daemon/http/listen.h"
#include "daemon/http/metrics.h"
#include "daemon/http/readiness.h"
#include "daemon/http/text.h"
#include "daemon/presence.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

enum {
    CONNECTIONS = 64,
    CONNECTION_BYTES = 16384, /* of a request's head, and for the reply's */
    TIMEOUT_MS = 10000,
    CROWDED_MS = 1000, /* for who has not asked yet, while all places are taken */
};

/* One that is open: libmicrohttpd only counts how long nothing comes, and a byte a second does. */
struct connection {
    struct connection *next, **self;
    int socket;
    uint64_t opened; /* of the loop's time */
    bool asked, shut;
};

struct rb_http {
    struct rb_daemon *daemon;
    struct rb_presence *presence;
    struct MHD_Daemon *server;
    uv_poll_t poll;
    uv_timer_t timer;
    char *address;
    struct connection *connections; /* newest first */
    size_t n_connections;
    bool leaving;
    int open; /* handles */
};

/* ---- Replies --------------------------------------------------------------------------------- */

struct reply {
    unsigned status;
    const char *type, *allow;
    struct rb_buffer body;
};

static bool write_readiness(struct rb_http *http, struct rb_buffer *out)
{
    struct rb_store *store = http->daemon->store;
    const struct rb_facts *facts = rb_store_facts(store);

    return rb_readiness_say(
        &(struct rb_readiness){
            .leaving = http->leaving,
            .synced = rb_store_synced(store),
            .connected = rb_store_connected(store),
            .registered = rb_presence_announced(http->presence),
            .leader = facts->leader.message ? facts->leader.leader->node : NULL,
        },
        out);
}

static void write_metrics(struct rb_http *http, struct rb_buffer *out)
{
    struct rb_daemon *daemon = http->daemon;
    struct rb_buffer reasons = {0};

    rb_metrics_write(
        &(struct rb_metrics){
            .version = RUBATO_VERSION,
            .node = daemon->settings->node,
            .ready = write_readiness(http, &reasons),
            .connected = rb_store_connected(daemon->store),
            /* Cut off from etcd it leads no more, as far as it knows; and its facts are old. */
            .leads = rb_coordinator_leads(daemon->coordinator) && rb_store_connected(daemon->store),
            .workers = rb_agent_workers(daemon->agent),
            .devices = daemon->devices,
            .facts = rb_store_facts(daemon->store),
            .now = rb_clock_unix_ms(),
        },
        out);
    rb_buffer_done(&reasons);
}

static void answer(struct rb_http *http, const char *path, const char *method, struct reply *reply)
{
    bool known = !strcmp(path, "/livez") || !strcmp(path, "/readyz") || !strcmp(path, "/metrics");

    reply->status = MHD_HTTP_OK;
    reply->type = "text/plain; charset=utf-8";
    if (!known) {
        reply->status = MHD_HTTP_NOT_FOUND;
        rb_buffer_text(&reply->body, "not found: there are /livez, /readyz and /metrics\n");
    } else if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD)) {
        reply->status = MHD_HTTP_METHOD_NOT_ALLOWED;
        reply->allow = "GET, HEAD";
        rb_buffer_text(&reply->body, "only GET and HEAD\n");
    } else if (path[1] == 'l') {
        rb_buffer_text(&reply->body, "ok\n");
    } else if (path[1] == 'r') {
        if (!write_readiness(http, &reply->body))
            reply->status = MHD_HTTP_SERVICE_UNAVAILABLE;
    } else {
        reply->type = RB_TEXT_TYPE;
        write_metrics(http, &reply->body);
    }
}

/* Asked when the head is there.  A reply at once means that a body is not read. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *body, size_t *body_size, void **request)
{
    const union MHD_ConnectionInfo *own =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct reply reply = {0};

    (void)version, (void)body, (void)body_size, (void)request;
    ((struct connection *)own->socket_context)->asked = true;
    answer(context, path, method, &reply);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply.body.size, reply.body.data, MHD_RESPMEM_MUST_COPY);
    rb_buffer_done(&reply.body);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply.type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (reply.allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, reply.allow);
    enum MHD_Result queued = MHD_queue_response(connection, reply.status, response);
    MHD_destroy_response(response);
    return queued;
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void on_opened_or_closed(void *context, struct MHD_Connection *of, void **ret,
                                enum MHD_ConnectionNotificationCode code)
{
    struct rb_http *http = context;
    struct connection *connection = *ret;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        connection = rb_alloc(sizeof(*connection));
        connection->socket =
            MHD_get_connection_info(of, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
        connection->opened = uv_now(http->daemon->loop);
        connection->next = http->connections;
        connection->self = &http->connections;
        if (connection->next)
            connection->next->self = &connection->next;
        http->connections = connection;
        http->n_connections++;
        *ret = connection;
    } else if (connection) {
        *connection->self = connection->next;
        if (connection->next)
            connection->next->self = connection->self;
        http->n_connections--;
        free(connection);
        *ret = NULL;
    }
}

/* Hang up on who takes too long; libmicrohttpd sees that as an end.  The time until the next. */
static uint64_t shut_late(struct rb_http *http, uint64_t now)
{
    const bool crowded = http->n_connections >= CONNECTIONS;
    uint64_t next = UINT64_MAX;

    for (struct connection *one = http->connections; one; one = one->next) {
        const uint64_t until = one->opened + (crowded && !one->asked ? CROWDED_MS : TIMEOUT_MS);

        if (!one->shut && until <= now) {
            shutdown(one->socket, SHUT_RDWR);
            one->shut = true;
        }
        if (!one->shut && until - now < next)
            next = until - now;
    }
    return next;
}

static void on_timer(uv_timer_t *timer);

static void turn(struct rb_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;
    bool full = http->n_connections >= CONNECTIONS;

    MHD_run(http->server);
    uint64_t wait = shut_late(http, uv_now(http->daemon->loop));
    if (MHD_get_timeout(http->server, &ms) == MHD_YES && ms < wait)
        wait = ms;
    if (full && http->n_connections < CONNECTIONS)
        wait = 0; /* it listens again from its next run on, and nothing else may wake it */
    if (wait == UINT64_MAX)
        uv_timer_stop(&http->timer);
    else
        uv_timer_start(&http->timer, on_timer, wait, 0);
}

static void on_timer(uv_timer_t *timer)
{
    turn(timer->data);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    turn(poll->data);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int start(struct rb_http *http, int socket, struct rb_why *why)
{
    http->server = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, socket,
        MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_MS / 1000,
        MHD_OPTION_NOTIFY_CONNECTION, on_opened_or_closed, http, MHD_OPTION_END);
    if (!http->server) /* which has closed the socket */
        return rb_why_set(why, RB_EIO, "%s: libmicrohttpd does not start", http->address);
    int epoll = MHD_get_daemon_info(http->server, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    int status = uv_poll_init(http->daemon->loop, &http->poll, epoll);
    if (status)
        return rb_why_set(why, RB_EIO, "%s: %s", http->address, uv_strerror(status));
    http->poll.data = http;
    http->open++;
    uv_poll_start(&http->poll, UV_READABLE, on_ready);
    return RB_OK;
}

int rb_http_new(struct rb_daemon *daemon, struct rb_presence *presence, const char *address,
                struct rb_http **ret_http, struct rb_why *why)
{
    struct rb_http *http = rb_alloc(sizeof(*http));
    int socket = -1;

    http->daemon = daemon;
    http->presence = presence;
    uv_timer_init(daemon->loop, &http->timer);
    http->timer.data = http;
    http->open = 1;
    int err = rb_http_listen(address, &socket, &http->address, why);
    err = err ? err : start(http, socket, why);
    if (err)
        rb_http_free(http);
    else
        *ret_http = http;
    return err;
}

const char *rb_http_taken(const struct rb_http *http)
{
    return http->address;
}

void rb_http_leave(struct rb_http *http)
{
    http->leaving = true;
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_http *http = handle->data;

    if (--http->open)
        return;
    free(http->address);
    free(http);
}

void rb_http_free(struct rb_http *http)
{
    if (!http)
        return;
    if (http->open > 1) {
        uv_poll_stop(&http->poll); /* before its descriptor is closed */
        uv_close((uv_handle_t *)&http->poll, on_closed);
    }
    if (http->server)
        MHD_stop_daemon(http->server);
    uv_close((uv_handle_t *)&http->timer, on_closed);
}
