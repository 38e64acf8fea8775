/* SPDX-License-Identifier: Apache-2.0 */
/* What server.c, connection.c, dispatch.c, request.c and client.c share: connections, requests and
 * calls. */
#ifndef RB_DAEMON_RPC_REQUEST_H
#define RB_DAEMON_RPC_REQUEST_H

#include "daemon/rpc/server.h"
#include "daemon/rpc/stream.h"
#include "rpc.pb-c.h"

struct method {
    const struct rb_server_method *method;
    void *context;
    struct method *next;
};

struct rb_server {
    uv_loop_t *loop;
    struct rb_store *store;
    struct rb_tls *tls; /* NULL: none is spoken */
    char *node;
    uv_timer_t timer; /* looks at requests that wait */
    uint64_t round;
    struct rb_listen *listens[4];
    size_t n_listens;
    struct method *methods;
    struct rb_connection *connections; /* newest first */
    size_t n_connections;
    size_t n_asked;      /* connections that have asked, and requests that they left */
    size_t most;         /* connections at a time; half as many may have asked */
    size_t half;         /* bytes of calls that are not whole yet, */
    size_t half_most;    /* and the most of them at a time */
    uint64_t silent_ms;  /* without a byte from a new connection, */
    uint64_t stalled_ms; /* and within a call, or behind an answer */
    uint64_t deaf_ms;    /* without taking a byte of an answer */
    uint64_t tell;       /* when the log may be told again of one that took none */
    bool told;           /* the log was told that all places are taken */
    struct rb_request *requests;
    struct rb_client_call *calls;
    bool closing; /* takes no calls any more */
};

struct rb_connection {
    struct rb_connection *next, **self;
    struct rb_server *server;
    struct rb_stream *stream;
    struct rb_buffer *in;       /* the stream's */
    struct rb_request *request; /* under way */
    size_t half;                /* what it has of those bytes */
    bool refused;
    bool forgets; /* drops what still comes of a call that was refused before it was whole */
    bool asked;   /* something whose answer is not all on its way */
};

struct rb_request {
    struct rb_request *next, **self;
    struct rb_server *server;
    struct rb_connection *connection; /* NULL: hung up, or local */
    struct rb_client_call *local;     /* the caller, when it is in this process */
    json_t *body;
    char *method, *node; /* node: NULL for here */
    uint32_t hops;
    bool left;  /* by its connection, among those that have asked */
    bool begun; /* its caller has pieces of an answer */
    bool lost;  /* the link to a coordinator that was reached, once */
    bool waiting;
    uint64_t deadline, looked;
    void (*gone)(void *context); /* when it is left; or NULL */
    void *gone_context;
    struct rb_client_call *forward; /* the call that answers this one */
    int64_t coordinator;            /* revision of its election, if it was asked as such; else 0 */
    int64_t asked;                  /* the last one asked, which may not have been reached */
    struct rb_why unreached;        /* and why it was not; empty: it was, or none was asked */
    struct rb_client_call *source;  /* a method's own call, whose pieces are sent on; or NULL */
    struct rb_sending *sending;     /* of a file; or NULL */
};

/* Of rb_stream_listen; `context`: the server. */
void rb_connection_accept(struct rb_stream *stream, void *context);
/* What was being sent to the caller ends, and so does what is asked of other nodes for it alone.
 * All else that it asked for goes on, and keeps its place; but a change that other writes have
 * overtaken is not decided anew. */
void rb_connection_close(struct rb_connection *connection);

/* Frees `call`, also on failure (NULL). */
struct rb_request *rb_request_new(struct rb_server *server, Rb__Call *call, struct rb_why *why);
void rb_request_free(struct rb_request *request);
void rb_request_drained(struct rb_request *request);       /* its connection has room again */
bool rb_request_is_full(const struct rb_request *request); /* for now */
void rb_request_left(struct rb_request *request); /* its caller has hung up; it may be gone now */

/* request_file.c: send no more for now, or go on; the request has ended. */
void rb_sending_hold(struct rb_sending *sending, bool held);
void rb_sending_drop(struct rb_sending *sending);

void rb_dispatch(struct rb_request *request);
void rb_dispatch_later(struct rb_request *request, uint64_t ms); /* dispatch it again then */
/* The request's coordinator was not reached (why), so nothing was done, or the request may repeat:
 * ask again soon, that coordinator or the next. */
void rb_dispatch_again(struct rb_request *request, const struct rb_why *why);
/* May the request be asked again, where a node may have done it already?  It may if it only looks,
 * its caller has nothing of an answer yet, and no other link was lost over it: the request may be
 * what ends the nodes that are asked. */
bool rb_dispatch_may_repeat(const struct rb_request *request);

/* A call on an address.  Takes the reference to options->body. */
struct rb_client_call *rb_client_open(struct rb_server *server, const char *address,
                                      const struct rb_client_options *options);
bool rb_client_reached(const struct rb_client_call *call);  /* false: nothing was done there */
bool rb_client_answered(const struct rb_client_call *call); /* an error is the other's own word */
void rb_client_pause(struct rb_client_call *call, bool paused);
/* Nobody waits for the answer any more: the call ends once the other side has all of it.  What was
 * asked for goes on there as for a caller who has hung up (rb_connection_close). */
void rb_client_abandon(struct rb_client_call *call);

/* From a request whose caller is in this process. */
void rb_client_piece(struct rb_client_call *call, const void *data, size_t size);
void rb_client_finish(struct rb_client_call *call, int err, const struct rb_why *why, json_t *body);

#endif
