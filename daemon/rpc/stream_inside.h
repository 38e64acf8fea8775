/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets of both kinds, for stream.c and, above it, stream_listen.c alone. */
#ifndef RB_DAEMON_RPC_STREAM_INSIDE_H
#define RB_DAEMON_RPC_STREAM_INSIDE_H

#include "daemon/rpc/stream.h"

#include <sys/un.h>

enum { RB_STREAM_PATH_MOST = sizeof(((struct sockaddr_un *)0)->sun_path) - 1 };

union rb_stream_socket {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_pipe_t pipe;
    uv_tcp_t tcp;
};

void rb_stream_socket_init(union rb_stream_socket *socket, uv_loop_t *loop, bool tcp);

/* Cut "HOST:PORT" or "[HOST]:PORT" in two; ret_port points into the text.  RB_EINVAL: it is
 * neither. */
int rb_stream_split(const char *text, char *host, size_t room, const char **ret_port);

/* The connection that waits, to be given events with rb_stream_set; NULL: it is gone. */
struct rb_stream *rb_stream_accept(uv_stream_t *listening, const char *address);

#endif
