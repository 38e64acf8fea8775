/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/server.h"

#include "base/arena.h"
#include "daemon/rpc/request.h"
#include "proto/frame.h"
#include "proto/tls.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    STALLED_MS = 60000,
    DEAF_MS = 60000,
    CONNECTIONS_MOST = 4096,
    HALF_MOST = 2 * RB_FRAME_LIMIT,
};

/* Half of the descriptors: a caller that is answered may take a second one, for another node or a
 * file. */
static size_t connections_most(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 2 > CONNECTIONS_MOST)
        return CONNECTIONS_MOST;
    return limit.rlim_cur < 4 ? 2 : limit.rlim_cur / 2;
}

struct rb_server *rb_server_new(uv_loop_t *loop, struct rb_store *store, const char *node)
{
    struct rb_server *server = rb_alloc(sizeof(*server));
    server->loop = loop;
    server->store = store;
    server->node = rb_string(node);
    server->most = connections_most();
    server->half_most = HALF_MOST;
    server->silent_ms = RB_STREAM_GREET_MS;
    server->stalled_ms = STALLED_MS;
    server->deaf_ms = DEAF_MS;
    uv_timer_init(loop, &server->timer);
    server->timer.data = server;
    return server;
}

void rb_server_secure(struct rb_server *server, struct rb_tls *tls)
{
    server->tls = tls;
}

void rb_server_add(struct rb_server *server, const struct rb_server_method *methods, void *context)
{
    for (; methods->name; methods++) {
        struct method *method = rb_alloc(sizeof(*method));
        method->method = methods;
        method->context = context;
        method->next = server->methods;
        server->methods = method;
    }
}

int rb_server_listen(struct rb_server *server, const char *address, char *ret_address,
                     struct rb_why *why)
{
    if (server->n_listens == RB_COUNT(server->listens))
        return rb_why_set(why, RB_ELIMIT, "too many addresses to listen on");
    int err = rb_stream_listen(server->loop, address, server->tls, rb_connection_accept, server,
                               ret_address, &server->listens[server->n_listens], why);
    if (!err)
        server->n_listens++;
    return err;
}

void rb_server_close(struct rb_server *server)
{
    server->closing = true;
    while (server->n_listens)
        rb_listen_close(server->listens[--server->n_listens]);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_server *server = handle->data;
    rb_tls_free(server->tls);
    free(server->node);
    free(server);
}

void rb_server_free(struct rb_server *server)
{
    if (!server)
        return;
    rb_server_close(server);
    while (server->connections)
        rb_connection_close(server->connections);
    while (server->calls)
        rb_client_cancel(server->calls);
    while (server->requests)
        rb_request_free(server->requests);
    for (struct method *method; (method = server->methods);) {
        server->methods = method->next;
        free(method);
    }
    uv_close((uv_handle_t *)&server->timer, on_closed);
}
