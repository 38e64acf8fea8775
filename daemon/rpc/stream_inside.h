/* SPDX-License-Identifier: Apache-2.0 */
/* What a stream is made of, for stream.c and stream_taken.c and, above them,
 * stream_connect.c and stream_listen.c alone. */
#ifndef RB_DAEMON_RPC_STREAM_INSIDE_H
#define RB_DAEMON_RPC_STREAM_INSIDE_H

#include "daemon/rpc/stream.h"
#include "daemon/rpc/stream_tls.h"

#include <sys/un.h>

enum { RB_STREAM_PATH_MOST = sizeof(((struct sockaddr_un *)0)->sun_path) - 1 };

union rb_stream_socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
};

struct rb_stream {
    union rb_stream_socket socket;
    uv_timer_t later; /* reports later what went wrong at once; else that nothing came in time */
    uv_timer_t take;  /* looks whether what is written is taken */
    uv_connect_t connect;
    uv_getaddrinfo_t resolve;
    struct rb_stream_events events;
    void *context;
    struct rb_buffer in, waiting; /* waiting: written before the connection stood */
    struct rb_stream_tls *tls;    /* NULL: bytes are as they are */
    char *address;
    bool connected, closed, ended, paused, resolving;
    uint64_t expect_ms; /* no longer without a byte; 0: however long */
    uint64_t take_ms;   /* no longer without any of it being taken; 0: however long */
    uint64_t written;   /* bytes given to the socket in all, */
    uint64_t taken;     /* and what of them the other had when it was looked last */
    unsigned looks;     /* since then it has taken nothing */
    int handles;        /* still open */
    int err;
    struct rb_why why;
};

/* `address` is for messages.  tcp: a TCP socket, else a unix socket.  The socket is not open yet.
 */
struct rb_stream *rb_stream_new(uv_loop_t *loop, const char *address, bool tcp);
void rb_stream_socket_init(union rb_stream_socket *socket, uv_loop_t *loop, bool tcp);

/* The socket of the calling side stands: `connected` comes now, or with TLS once that is agreed on.
 */
void rb_stream_reached(struct rb_stream *stream);

/* Tell the stream's owner that it has ended.  A function of stream.h calls the second, which tells
 * later. */
void rb_stream_end(struct rb_stream *stream, int err, const char *what);
void rb_stream_end_later(struct rb_stream *stream, int err, const char *what);

/* So many bytes more were given to the socket. */
void rb_stream_written(struct rb_stream *stream, size_t size);

/* Called behind a stream's close each time that a part of it ends: the last time the stream is
 * gone. */
void rb_stream_release(struct rb_stream *stream);

/* Cut "HOST:PORT" or "[HOST]:PORT" in two; ret_port points into the text.  RB_EINVAL: it is
 * neither. */
int rb_stream_split(const char *text, char *host, size_t room, const char **ret_port);

/* HOST:PORT of tcp:HOST:PORT and tls:HOST:PORT; NULL: it is neither. */
const char *rb_stream_where(const char *address);

#endif
