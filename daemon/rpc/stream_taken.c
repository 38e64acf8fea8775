/* SPDX-License-Identifier: Apache-2.0 */
/* Does the other side take what is written?  What the kernel holds for it counts too: the kernel
 * asks us for more only when most of that is gone, which takes a slow reader long. */
#include "daemon/rpc/stream_inside.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>

/* Looks are counted, and not the time that has passed: a rubatod that was stopped itself cuts no
 * peer off. */
enum { LOOKS = 8 };

static uint64_t taken(const struct rb_stream *stream)
{
    int fd, held = 0;

    if (uv_fileno(&stream->socket.handle, &fd) || ioctl(fd, SIOCOUTQ, &held))
        held = 0;
    return stream->written - uv_stream_get_write_queue_size(&stream->socket.stream) -
           (uint64_t)held;
}

static void look(uv_timer_t *timer)
{
    struct rb_stream *stream = timer->data;
    const uint64_t now = taken(stream);

    if (!uv_stream_get_write_queue_size(&stream->socket.stream)) {
        uv_timer_stop(timer);
    } else if (now != stream->taken) {
        stream->taken = now;
        stream->looks = 0;
    } else if (++stream->looks == LOOKS) {
        uv_timer_stop(timer);
        rb_stream_end(stream, RB_ETIMEOUT, "nothing of what is sent there was taken in time");
    }
}

void rb_stream_written(struct rb_stream *stream, size_t size)
{
    const uint64_t every = (stream->take_ms + LOOKS - 1) / LOOKS;

    stream->written += size;
    if (!every || uv_is_active((uv_handle_t *)&stream->take) ||
        !uv_stream_get_write_queue_size(&stream->socket.stream))
        return;
    stream->taken = taken(stream);
    stream->looks = 0;
    uv_timer_start(&stream->take, look, every, every);
}

void rb_stream_expect_taken(struct rb_stream *stream, uint64_t ms)
{
    stream->take_ms = ms;
    if (!uv_stream_get_write_queue_size(&stream->socket.stream))
        uv_timer_stop(&stream->take); /* its times were those of bytes that are gone */
}
