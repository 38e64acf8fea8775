/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/reply.h"

#include "base/error.h"

#include <jansson.h>
#include <stdlib.h>

static const struct header {
    const char *name, *value;
} headers[] = {
    {MHD_HTTP_HEADER_CONNECTION, "close"},
    {MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache"},
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Referrer-Policy", "no-referrer"},
    {"X-Content-Type-Options", "nosniff"},
};

void rb_reply_error(struct rb_reply *reply, unsigned status, const char *text)
{
    json_t *body = json_pack("{s:s}", "error", text);
    char *dumped = body ? json_dumps(body, JSON_COMPACT) : NULL;

    reply->status = status;
    reply->type = "application/json";
    rb_buffer_clear(&reply->body);
    rb_buffer_text(&reply->body, dumped ? dumped : "{\"error\":\"no reason that is UTF-8\"}");
    free(dumped);
    json_decref(body);
}

enum MHD_Result rb_reply_send(struct rb_reply *reply, struct MHD_Connection *connection)
{
    const size_t size = reply->body.size;
    char *body = rb_buffer_take(&reply->body);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(size, body, MHD_RESPMEM_MUST_FREE);
    enum MHD_Result queued;

    if (!response) {
        free(body);
        return MHD_NO;
    }
    for (size_t i = 0; i < RB_COUNT(headers); i++)
        MHD_add_response_header(response, headers[i].name, headers[i].value);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    if (reply->allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, reply->allow);
    queued = MHD_queue_response(connection, reply->status, response);
    MHD_destroy_response(response);
    return queued;
}
