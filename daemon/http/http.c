/* SPDX-License-Identifier: Apache-2.0 */
/* libmicrohttpd waits on an epoll descriptor of its own, and we on that: whatever it has to do is
 * done in MHD_run, which does not block. */
#include "daemon/http/http.h"

#include "base/arena.h"
#include "daemon/http/inside.h"
#include "daemon/http/listen.h"

#include <stdlib.h>
#include <string.h>

enum {
    CONNECTION_BYTES = 16384, /* of a request's head, and for the reply's */
    CROWDED_MS = 1000,        /* for a client that has not asked yet, while all places are taken */
};

/* A text that holds a NUL, at which it would be cut, stays as it was written, and is the name of
 * nothing. */
static size_t unescape(void *context, struct MHD_Connection *own, char *text)
{
    (void)context, (void)own;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* Called when a request's head is there, and again when an answer that comes later has come.  Where
 * the reply is sent at once the request's body is not read; else the body is thrown away. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *own, const char *path,
                                  const char *method, const char *version, const char *body,
                                  size_t *body_size, void **request)
{
    struct rb_http_connection *connection =
        MHD_get_connection_info(own, MHD_CONNECTION_INFO_SOCKET_CONTEXT)->socket_context;
    struct rb_reply reply = {0};

    (void)version, (void)body, (void)request;
    if (connection->asked && *body_size) {
        *body_size = 0;
        return MHD_YES;
    }
    if (connection->asked)
        return rb_reply_send(&connection->reply, own);
    connection->asked = true;
    if (!rb_http_is_api(path, method))
        rb_http_answer(context, path, method, &reply);
    else if (rb_http_call(connection, path, &reply))
        return MHD_YES;
    return rb_reply_send(&reply, own);
}

/* ---- The loop -------------------------------------------------------------------------------- */

static void on_opened_or_closed(void *context, struct MHD_Connection *of, void **ret,
                                enum MHD_ConnectionNotificationCode code)
{
    struct rb_http *http = context;
    struct rb_http_connection *connection = *ret;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        connection = rb_alloc(sizeof(*connection));
        connection->http = http;
        connection->own = of;
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
        rb_http_forget(connection);
        *ret = NULL;
    }
}

/* Hang up on clients that take too long; libmicrohttpd sees that as an end.  Returns the time until
 * the next one is due. */
static uint64_t shut_late(struct rb_http *http, uint64_t now)
{
    const bool crowded = http->n_connections >= RB_HTTP_CONNECTIONS;
    uint64_t next = UINT64_MAX;

    for (struct rb_http_connection *one = http->connections; one; one = one->next) {
        const uint64_t until =
            one->opened + (crowded && !one->asked ? CROWDED_MS : RB_HTTP_TIMEOUT_MS);

        if (!one->shut && until <= now) {
            shutdown(one->socket, SHUT_RDWR);
            one->shut = true;
            if (rb_http_hang_up(one, "too late"))
                next = 0; /* libmicrohttpd hears of both in its next run */
        }
        if (!one->shut && until - now < next)
            next = until - now;
    }
    return next;
}

static void on_timer(uv_timer_t *timer);

void rb_http_turn(struct rb_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;
    bool full = http->n_connections >= RB_HTTP_CONNECTIONS;

    MHD_run(http->server);
    uint64_t wait = shut_late(http, uv_now(http->daemon->loop));
    if (MHD_get_timeout(http->server, &ms) == MHD_YES && ms < wait)
        wait = ms;
    if (full && http->n_connections < RB_HTTP_CONNECTIONS)
        wait = 0; /* it listens again from its next run on, and nothing else may wake it */
    if (wait == UINT64_MAX)
        uv_timer_stop(&http->timer);
    else
        uv_timer_start(&http->timer, on_timer, wait, 0);
}

static void on_timer(uv_timer_t *timer)
{
    rb_http_turn(timer->data);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    rb_http_turn(poll->data);
}

/* ---- Life ------------------------------------------------------------------------------------ */

static int start(struct rb_http *http, int socket, struct rb_why *why)
{
    http->server = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, on_request, http,
        MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)RB_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)RB_HTTP_TIMEOUT_MS / 1000,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_opened_or_closed, http, MHD_OPTION_END);
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

/* Clients that wait for an answer are told that none comes, as far as that can be written at once.
 * No connection may be suspended when libmicrohttpd stops. */
static void stop(struct rb_http *http)
{
    if (!http->server)
        return;
    for (struct rb_http_connection *one = http->connections; one; one = one->next)
        rb_http_hang_up(one, "rubatod stops");
    MHD_run(http->server);
    for (struct rb_http_connection *one = http->connections; one; one = one->next)
        rb_http_hang_up(one, "rubatod stops"); /* those that asked just now */
    MHD_stop_daemon(http->server);
    http->server = NULL;
}

void rb_http_free(struct rb_http *http)
{
    if (!http)
        return;
    if (http->open > 1) {
        uv_poll_stop(&http->poll); /* before its descriptor is closed */
        uv_close((uv_handle_t *)&http->poll, on_closed);
    }
    stop(http);
    uv_close((uv_handle_t *)&http->timer, on_closed);
}
