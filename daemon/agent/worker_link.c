/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/agent/worker_link.h"

#include "base/arena.h"
#include "base/log.h"
#include "daemon/rpc/stream.h"
#include "proto/frame.h"

#include <stdlib.h>

enum { FIRST_MS = 5, LONGEST_MS = 100 }; /* a fresh worker listens within tens of milliseconds */

struct rb_worker_link {
    uv_timer_t timer;
    struct rb_stream *stream;
    char *address;
    uint64_t wait_ms;
    bool connected, closed;
    struct rb_worker_link_events events;
    void *context;
};

static void connect_now(uv_timer_t *timer);

static void again(struct rb_worker_link *link)
{
    bool had = link->connected;
    rb_stream_close(link->stream);
    link->stream = NULL;
    link->connected = false;
    uv_timer_start(&link->timer, connect_now, link->wait_ms, 0);
    link->wait_ms = link->wait_ms * 2 > LONGEST_MS ? LONGEST_MS : link->wait_ms * 2;
    if (had)
        link->events.lost(link->context);
}

static void on_connected(struct rb_stream *stream, void *context)
{
    struct rb_worker_link *link = context;
    link->connected = true;
    link->wait_ms = FIRST_MS;
    link->events.connected(rb_stream_peer(stream), link->context);
}

static void on_bytes(struct rb_stream *stream, struct rb_buffer *in, void *context)
{
    struct rb_worker_link *link = context;
    while (!link->closed && link->stream == stream) {
        struct rb_why why = {0};
        ProtobufCMessage *message = NULL;
        int err =
            rb_frame_take(in, RB_FRAME_FROM_WORKER, &rb__from_worker__descriptor, &message, &why);
        if (err == RB_EAGAIN)
            return;
        if (err) {
            rb_log(RB_LOG_ERROR, "%s: %s", link->address, why.text);
            again(link);
            return;
        }
        link->events.message((const Rb__FromWorker *)message, link->context);
        protobuf_c_message_free_unpacked(message, NULL);
    }
}

static void on_ended(struct rb_stream *stream, int err, const struct rb_why *why, void *context)
{
    (void)stream;
    (void)err;
    (void)why;
    again(context);
}

static const struct rb_stream_events events = {
    .connected = on_connected,
    .bytes = on_bytes,
    .ended = on_ended,
};

static void connect_now(uv_timer_t *timer)
{
    struct rb_worker_link *link = timer->data;
    link->stream = rb_stream_connect(timer->loop, link->address, NULL, &events, link);
}

struct rb_worker_link *rb_worker_link_new(uv_loop_t *loop, const char *socket_path,
                                          const struct rb_worker_link_events *link_events,
                                          void *context)
{
    struct rb_worker_link *link = rb_alloc(sizeof(*link));
    link->address = rb_format("unix:%s", socket_path);
    link->events = *link_events;
    link->context = context;
    link->wait_ms = FIRST_MS;
    uv_timer_init(loop, &link->timer);
    link->timer.data = link;
    uv_timer_start(&link->timer, connect_now, 0, 0);
    return link;
}

void rb_worker_link_send(struct rb_worker_link *link, const Rb__ToWorker *message)
{
    struct rb_buffer out = {0};
    if (!link->connected)
        return;
    rb_frame_put(&out, RB_FRAME_TO_WORKER, &message->base);
    rb_stream_write(link->stream, &out);
    rb_buffer_done(&out);
}

static void on_closed(uv_handle_t *handle)
{
    struct rb_worker_link *link = handle->data;
    free(link->address);
    free(link);
}

void rb_worker_link_close(struct rb_worker_link *link)
{
    if (!link || link->closed)
        return;
    link->closed = true;
    rb_stream_close(link->stream);
    uv_close((uv_handle_t *)&link->timer, on_closed);
}
