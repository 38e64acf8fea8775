/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the cluster: each is a call of an RPC method, at the leader, and the connection
 * waits for its end.  The client may be gone by then; that is found out when the reply is written.
 */
#include "base/clock.h"
#include "daemon/http/inside.h"
#include "daemon/http/query.h"

#include <stdlib.h>
#include <string.h>

enum { ARGUMENTS = 8, SPARE_MS = 1000 }; /* SPARE_MS: to write a reply before the place is lost */

struct arguments {
    struct rb_query_argument at[ARGUMENTS];
    size_t n;
    bool many; /* more of them */
};

static enum MHD_Result add_argument(void *context, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    struct arguments *all = context;

    (void)kind;
    all->many = all->n == ARGUMENTS;
    if (all->many)
        return MHD_NO;
    all->at[all->n++] = (struct rb_query_argument){name, value};
    return MHD_YES;
}

bool rb_http_is_api(const char *path, const char *method)
{
    return !strncmp(path, "/api/", 5) &&
           (!strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD));
}

static void on_done(int err, const struct rb_why *why, const json_t *body, void *context)
{
    struct rb_http_connection *connection = context;
    struct rb_reply *reply = &connection->reply;
    char *text = err ? NULL : json_dumps(body, JSON_COMPACT);

    connection->call = NULL;
    connection->http->n_calls--;
    if (text) {
        reply->status = MHD_HTTP_OK;
        reply->type = "application/json";
        rb_buffer_text(&reply->body, text);
    } else {
        rb_reply_error(reply, rb_query_status(err ? err : RB_EINTERNAL),
                       why->text[0] ? why->text : rb_error_text(err ? err : RB_EINTERNAL));
    }
    free(text);
    MHD_resume_connection(connection->own);
    rb_http_turn(connection->http);
}

/* At least 1 ms: 0 would stand for the usual timeout of calls. */
static uint64_t ms_left(const struct rb_http_connection *connection)
{
    const uint64_t until = connection->opened + RB_HTTP_TIMEOUT_MS - SPARE_MS;
    const uint64_t now = uv_now(connection->http->daemon->loop);

    return until > now ? until - now : 1;
}

bool rb_http_call(struct rb_http_connection *connection, const char *path, struct rb_reply *reply)
{
    struct rb_http *http = connection->http;
    struct arguments arguments = {0};
    struct rb_why why = {0};
    const char *method;
    json_t *body;
    int err;

    MHD_get_connection_values(connection->own, MHD_GET_ARGUMENT_KIND, add_argument, &arguments);
    err = arguments.many ? rb_why_set(&why, RB_EINVAL, "more than %d arguments", ARGUMENTS)
                         : rb_query_read(path, arguments.at, arguments.n, &method, &body, &why);
    if (err) {
        rb_reply_error(reply, rb_query_status(err), why.text);
        return false;
    }
    if (http->n_calls == RB_HTTP_CALLS) {
        json_decref(body);
        rb_reply_error(reply, MHD_HTTP_SERVICE_UNAVAILABLE,
                       "too much is asked for at once: ask again");
        return false;
    }
    http->n_calls++;
    connection->call = rb_server_call(http->daemon->server, &(struct rb_client_options){
                                                                .method = method,
                                                                .body = body,
                                                                .node = "leader",
                                                                .timeout_ms = ms_left(connection),
                                                                .done = on_done,
                                                                .context = connection,
                                                            });
    MHD_suspend_connection(connection->own);
    return true;
}

bool rb_http_hang_up(struct rb_http_connection *connection, const char *why)
{
    if (!connection->call)
        return false;
    rb_client_cancel(connection->call);
    connection->call = NULL;
    connection->http->n_calls--;
    rb_reply_error(&connection->reply, MHD_HTTP_SERVICE_UNAVAILABLE, why);
    MHD_resume_connection(connection->own);
    return true;
}

void rb_http_forget(struct rb_http_connection *connection)
{
    if (connection->call) {
        rb_client_cancel(connection->call);
        connection->http->n_calls--;
    }
    rb_buffer_done(&connection->reply.body);
    free(connection);
}
