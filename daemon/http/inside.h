/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the HTTP server share.
 *
 * A connection is for one request.  What this node knows by itself is answered at once (answer.c);
 * what the cluster is asked for, later (api.c): until then libmicrohttpd leaves the connection
 * alone, and sees neither its end nor its age. */
#ifndef RB_DAEMON_HTTP_INSIDE_H
#define RB_DAEMON_HTTP_INSIDE_H

#include "daemon/daemon.h"
#include "daemon/http/http.h"
#include "daemon/http/reply.h"

#include <stdbool.h>

enum {
    RB_HTTP_CONNECTIONS = 64,
    RB_HTTP_CALLS = 32, /* the other places are for requests to this node alone */
    RB_HTTP_TIMEOUT_MS = 10000,
};

/* An open connection, and its age: libmicrohttpd only counts how long nothing comes, and a byte a
 * second is enough for it. */
struct rb_http_connection {
    struct rb_http *http;
    struct MHD_Connection *own;
    struct rb_http_connection *next, **self;
    int socket;
    uint64_t opened; /* of the loop's time */
    bool asked, shut;
    struct rb_client_call *call; /* under way: it is suspended.  NULL: there is none, or it ended */
    struct rb_reply reply;       /* what came of it; status 0: nothing was asked of the cluster */
};

struct rb_http {
    struct rb_daemon *daemon;
    struct rb_presence *presence;
    struct MHD_Daemon *server;
    uv_poll_t poll;
    uv_timer_t timer;
    char *address;
    struct rb_http_connection *connections; /* newest first */
    size_t n_connections, n_calls;
    bool leaving;
    int open; /* handles */
};

/* http.c: let libmicrohttpd do what there is to do; nothing else tells it of a resumed connection.
 */
void rb_http_turn(struct rb_http *http);

/* answer.c: at once, from this node's facts, or from its files. */
void rb_http_answer(struct rb_http *http, const char *path, const char *method,
                    struct rb_reply *reply);

/* api.c: is this a question to the cluster?  By its path, and by GET or HEAD. */
bool rb_http_is_api(const char *path, const char *method);

/* Ask; true: an answer comes later, and the connection is suspended.  Else `reply` says why not. */
bool rb_http_call(struct rb_http_connection *connection, const char *path, struct rb_reply *reply);

/* If a call is under way, wait for its answer no more; `why` is told instead, from the next turn
 * on. */
bool rb_http_hang_up(struct rb_http_connection *connection, const char *why);

/* The connection is closed. */
void rb_http_forget(struct rb_http_connection *connection);

#endif
