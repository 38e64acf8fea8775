/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/client.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "proto/frame.h"
#include "rpc.pb-c.h"

enum { READ = 65536, TLS_ALERT = 21 };

static int send_call(struct rb_line *line, const struct rb_client_call *call, struct rb_why *why)
{
    RB_CLEANUP(rb_freep)
    char *text = call->body ? json_dumps(call->body, JSON_COMPACT) : rb_string("{}");
    RB_CLEANUP(rb_buffer_done) struct rb_buffer out = {0};
    Rb__Call message = RB__CALL__INIT;

    message.method = (char *)call->method;
    message.node = (char *)call->node;
    message.body = text;
    rb_frame_put(&out, RB_FRAME_CALL, &message.base);
    return rb_line_put(line, out.data, out.size, why);
}

static int next_reply(struct rb_line *line, const struct rb_client_call *call, struct rb_buffer *in,
                      Rb__Reply **ret_reply, struct rb_why *why)
{
    ProtobufCMessage *message = NULL;
    int err;

    for (;;) {
        size_t got = 0;

        err = rb_frame_take(in, RB_FRAME_REPLY, &rb__reply__descriptor, &message, why);
        if (err != RB_EAGAIN)
            break;
        err = rb_line_get(line, rb_buffer_reserve(in, READ), READ, &got, why);
        if (err)
            return err;
        in->size += got;
    }
    if (err && in->size && (unsigned char)in->data[0] == TLS_ALERT)
        return rb_line_broken(line, "speaks TLS: call it as tls:HOST:PORT", why);
    if (err) /* whatever answers there, it is no known rubatod */
        return rb_why_add(why, RB_EUNREACHABLE, "%s", call->to.endpoint);
    *ret_reply = (Rb__Reply *)message;
    return 0;
}

static int take_reply(const struct rb_line *line, const struct rb_client_call *call,
                      const Rb__Reply *reply, json_t **ret_body, struct rb_why *why)
{
    json_t *body;

    if (reply->error)
        return rb_why_set(why, reply->error < 0 ? reply->error : RB_EINTERNAL, "%s",
                          reply->why && reply->why[0] ? reply->why : rb_error_text(reply->error));
    if (reply->has_data && reply->data.len) {
        int err = RB_EINVAL;

        if (!call->piece)
            return rb_line_broken(line, "sent data where none were asked for", why);
        err = call->piece(call->context, reply->data.data, reply->data.len, why);
        if (err)
            return err;
    }
    if (!reply->last)
        return 0;
    body = reply->body ? json_loads(reply->body, 0, NULL) : json_object();
    if (!json_is_object(body)) {
        json_decref(body);
        return rb_line_broken(line, "sent a reply that is no JSON object", why);
    }
    *ret_body = body;
    return 0;
}

static int talk(struct rb_line *line, const struct rb_client_call *call, struct rb_buffer *in,
                json_t **ret_body, struct rb_why *why)
{
    json_t *body = NULL;
    int err;

    rb_line_arm(line, call->quiet_ms);
    err = send_call(line, call, why);
    while (!err && !body) {
        Rb__Reply *reply = NULL;

        rb_line_arm(line, call->quiet_ms);
        err = next_reply(line, call, in, &reply, why);
        if (err)
            break;
        err = take_reply(line, call, reply, &body, why);
        rb__reply__free_unpacked(reply, NULL);
    }
    if (!err)
        *ret_body = body;
    return err;
}

int rb_client_call(const struct rb_client_call *call, json_t **ret_body, struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer in = {0};
    struct rb_line_to to = call->to;
    struct rb_line *line = NULL;
    int err;

    to.most_ms = call->quiet_ms;
    err = rb_line_open(&to, &line, why);
    if (!err)
        err = talk(line, call, &in, ret_body, why);
    rb_line_close(line);
    return err;
}
