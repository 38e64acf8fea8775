/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/stream_inside.h"

#include "base/arena.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct rb_listen {
    union rb_stream_socket socket;
    char *address;
    struct rb_tls *tls;
    void (*accepted)(struct rb_stream *stream, void *context);
    void *context;
};

static void on_connection(uv_stream_t *handle, int status)
{
    struct rb_listen *listen = handle->data;
    if (status < 0)
        return;
    struct rb_stream *stream = rb_stream_accept(handle, listen->address, listen->tls);
    if (stream)
        listen->accepted(stream, listen->context);
}

/* Does a living process listen there?  A negative errno where nobody can be asked. */
static int alive(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    memcpy(to.sun_path, path, strlen(path));
    bool refused = connect(fd, (struct sockaddr *)&to, sizeof(to)) && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static int bind_unix(struct rb_listen *listen, const char *path, struct rb_why *why)
{
    if (strlen(path) > RB_STREAM_PATH_MOST)
        return rb_why_set(why, RB_ELIMIT, "the path of the socket is longer than %d bytes: %s",
                          (int)RB_STREAM_PATH_MOST, path);
    int status = uv_pipe_bind(&listen->socket.pipe, path);
    int there = status == UV_EADDRINUSE ? alive(path) : 0;
    if (there < 0)
        return rb_why_set(why, RB_EIO, "cannot ask whether another process uses %s: %s", path,
                          strerror(-there));
    if (status == UV_EADDRINUSE && !there) {
        unlink(path);
        status = uv_pipe_bind(&listen->socket.pipe, path);
    }
    if (status == UV_EADDRINUSE)
        return rb_why_set(why, RB_EEXISTS, "%s is in use by another process", path);
    if (!status && chmod(path, 0600))
        status = -errno;
    return status ? rb_why_set(why, RB_EIO, "%s: %s", path, uv_strerror(status)) : RB_OK;
}

static int bind_tcp(struct rb_listen *listen, const char *where, char *ret_address,
                    struct rb_why *why)
{
    char host[256];
    const char *port;
    struct sockaddr_storage address;
    int length = sizeof(address);
    if (rb_stream_split(where, host, sizeof(host), &port))
        return rb_why_set(why, RB_EINVAL, "'%s' is not ADDRESS:PORT", where);
    bool six = strchr(host, ':') != NULL;
    int status = six ? uv_ip6_addr(host, atoi(port), (struct sockaddr_in6 *)&address)
                     : uv_ip4_addr(host, atoi(port), (struct sockaddr_in *)&address);
    if (status)
        return rb_why_set(why, RB_EINVAL, "'%s' is not a numeric address", host);
    status = uv_tcp_bind(&listen->socket.tcp, (struct sockaddr *)&address, 0);
    if (!status)
        status = uv_tcp_getsockname(&listen->socket.tcp, (struct sockaddr *)&address, &length);
    if (status)
        return rb_why_set(why, status == UV_EADDRINUSE ? RB_EEXISTS : RB_EIO, "%s: %s", where,
                          uv_strerror(status));
    int chosen = ntohs(six ? ((struct sockaddr_in6 *)&address)->sin6_port
                           : ((struct sockaddr_in *)&address)->sin_port);
    snprintf(ret_address, 128, six ? "%s:[%s]:%d" : "%s:%s:%d", listen->tls ? "tls" : "tcp", host,
             chosen);
    return RB_OK;
}

static void on_listen_closed(uv_handle_t *handle)
{
    struct rb_listen *listen = handle->data;
    free(listen->address);
    free(listen);
}

void rb_listen_close(struct rb_listen *listen)
{
    if (listen && !uv_is_closing(&listen->socket.handle))
        uv_close(&listen->socket.handle, on_listen_closed);
}

int rb_stream_listen(uv_loop_t *loop, const char *address, struct rb_tls *tls,
                     void (*accepted)(struct rb_stream *stream, void *context), void *context,
                     char *ret_address, struct rb_listen **ret_listen, struct rb_why *why)
{
    const char *where = rb_stream_where(address);
    bool secret = !strncmp(address, "tls:", 4);
    if (!where && strncmp(address, "unix:", 5))
        return rb_why_set(why, RB_EINVAL, "'%s' is none of unix:PATH, tcp:HOST:PORT, tls:HOST:PORT",
                          address);
    if (secret && !tls)
        return rb_why_set(why, RB_EINVAL, "%s: there are no certificates for it", address);
    struct rb_listen *listen = rb_alloc(sizeof(*listen));
    listen->tls = secret ? tls : NULL;
    listen->accepted = accepted;
    listen->context = context;
    rb_stream_socket_init(&listen->socket, loop, where);
    listen->socket.handle.data = listen;
    snprintf(ret_address, 128, "%s", address);
    int err =
        where ? bind_tcp(listen, where, ret_address, why) : bind_unix(listen, address + 5, why);
    listen->address = rb_string(address);
    int status = err ? 0 : uv_listen(&listen->socket.stream, 64, on_connection);
    if (status)
        err =
            rb_why_set(why, status == UV_EADDRINUSE ? RB_EEXISTS : RB_EIO, "%s: %s", address,
                       status == UV_EADDRINUSE ? "in use by another process" : uv_strerror(status));
    if (err) {
        rb_listen_close(listen);
        return err;
    }
    *ret_listen = listen;
    return RB_OK;
}
