/* SPDX-License-Identifier: Apache-2.0 */
/* Connecting to another: over a unix socket, or over TCP, in the clear or not. */
#include "daemon/rpc/stream_inside.h"

#include <stdlib.h>
#include <string.h>

static void on_connect(uv_connect_t *connect, int status)
{
    struct rb_stream *stream = connect->data;
    if (stream->closed)
        return;
    if (status < 0) {
        rb_stream_end(stream, RB_EUNREACHABLE, uv_strerror(status));
        return;
    }
    rb_stream_reached(stream);
}

static void on_resolved(uv_getaddrinfo_t *resolve, int status, struct addrinfo *found)
{
    struct rb_stream *stream = resolve->data;
    stream->resolving = false;
    if (stream->closed) {
        rb_stream_release(stream);
    } else {
        if (!status)
            status =
                uv_tcp_connect(&stream->connect, &stream->socket.tcp, found->ai_addr, on_connect);
        if (status < 0)
            rb_stream_end(stream, RB_EUNREACHABLE, uv_strerror(status));
    }
    uv_freeaddrinfo(found);
}

int rb_stream_split(const char *text, char *host, size_t room, const char **ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!length || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || atoi(colon + 1) > 65535)
        return RB_EINVAL;
    if (text[0] == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    if (length >= room)
        return RB_EINVAL;
    memcpy(host, text, length);
    host[length] = 0;
    *ret_port = colon + 1;
    return RB_OK;
}

const char *rb_stream_where(const char *address)
{
    return strncmp(address, "tcp:", 4) && strncmp(address, "tls:", 4) ? NULL : address + 4;
}

static int secure(struct rb_stream *stream, const char *host, struct rb_tls *tls,
                  struct rb_why *why)
{
    const bool wanted = !strncmp(stream->address, "tls:", 4);
    if (wanted && tls)
        return rb_stream_tls_new(tls, host, &stream->tls, why);
    if (wanted)
        return rb_why_set(why, RB_EUNREACHABLE,
                          "it takes TLS alone, and this rubatod was started without --tls");
    if (tls)
        return rb_why_set(why, RB_EUNREACHABLE,
                          "it listens without TLS, and this rubatod was started with --tls");
    return RB_OK;
}

static void connect_tcp(struct rb_stream *stream, uv_loop_t *loop, const char *where,
                        struct rb_tls *tls)
{
    char host[256];
    const char *port;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (rb_stream_split(where, host, sizeof(host), &port)) {
        rb_stream_end_later(stream, RB_EINVAL, "not HOST:PORT");
        return;
    }
    struct rb_why why = {0};
    int err = secure(stream, host, tls, &why);
    if (err) {
        rb_stream_end_later(stream, err, why.text);
        return;
    }
    int status = uv_getaddrinfo(loop, &stream->resolve, on_resolved, host, port, &hints);
    stream->resolving = !status;
    if (status)
        rb_stream_end_later(stream, RB_EUNREACHABLE, uv_strerror(status));
}

struct rb_stream *rb_stream_connect(uv_loop_t *loop, const char *address, struct rb_tls *tls,
                                    const struct rb_stream_events *events, void *context)
{
    const char *where = rb_stream_where(address);
    bool local = !strncmp(address, "unix:", 5);
    struct rb_stream *stream = rb_stream_new(loop, address, where);
    stream->events = *events;
    stream->context = context;
    if (where)
        connect_tcp(stream, loop, where, tls);
    else if (local && strlen(address + 5) <= RB_STREAM_PATH_MOST)
        uv_pipe_connect(&stream->connect, &stream->socket.pipe, address + 5, on_connect);
    else
        rb_stream_end_later(stream, RB_EINVAL,
                            "none of unix:PATH, tcp:HOST:PORT and tls:HOST:PORT");
    return stream;
}
