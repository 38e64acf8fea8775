/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets.  Small reads go through a buffer, so that a frame's header and a short payload cost one
 * system call; large reads go straight to where the bytes belong. */
#include "coll/link.h"

#include "base/arena.h"
#include "base/error.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER = 256 * 1024, DIRECT = 64 * 1024, SOCKET_BUFFER = 4 * 1024 * 1024 };
/* A host has vanished when bytes were sent again so often, and nothing was heard for so long. */
enum { SENT_AGAIN = 4, SILENT_MS = 4000 };

struct stream {
    struct rb_link link;
    size_t from, to; /* unread bytes of `bytes` */
    uint8_t bytes[BUFFER];
};

static bool not_now(int number)
{
    return number == EAGAIN || number == EWOULDBLOCK || number == EINTR || number == ENOBUFS;
}

/* One recv: bytes, 0 for none yet, RB_EPEER. */
static int64_t pull(struct rb_link *link, void *to, size_t size)
{
    ssize_t got = recv(link->fd, to, size, MSG_DONTWAIT);

    if (got > 0)
        return got;
    if (got < 0 && not_now(errno))
        return 0;
    atomic_store(&link->ended, true);
    return RB_EPEER;
}

static int64_t fill(struct stream *stream)
{
    int64_t got;

    if (stream->from) {
        memmove(stream->bytes, stream->bytes + stream->from, stream->to - stream->from);
        stream->to -= stream->from;
        stream->from = 0;
    }
    got = pull(&stream->link, stream->bytes + stream->to, BUFFER - stream->to);
    if (got > 0)
        stream->to += (size_t)got;
    return got;
}

static int64_t stream_send(struct rb_link *link, const struct iovec *pieces, int count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = (size_t)count};
    ssize_t put = sendmsg(link->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

    if (put >= 0)
        return put;
    return not_now(errno) ? 0 : RB_EPEER;
}

static int64_t stream_receive(struct rb_link *link, void *to, size_t size)
{
    struct stream *stream = (struct stream *)link;
    size_t have = stream->to - stream->from;
    int64_t got;

    if (!have && size >= DIRECT)
        return pull(link, to, size);
    if (!have) {
        if ((got = fill(stream)) <= 0)
            return got;
        have = stream->to;
    }
    size = size < have ? size : have;
    memcpy(to, stream->bytes + stream->from, size);
    stream->from += size;
    return (int64_t)size;
}

static int64_t stream_peek(struct rb_link *link, const uint8_t **ret)
{
    struct stream *stream = (struct stream *)link;
    int64_t got = 0;

    if (stream->to - stream->from < 8)
        got = fill(stream);
    if (stream->to == stream->from)
        return got;
    *ret = stream->bytes + stream->from;
    return (int64_t)(stream->to - stream->from);
}

static void stream_consume(struct rb_link *link, size_t size)
{
    ((struct stream *)link)->from += size;
}

/* Bytes in the buffer do not count: a caller that waits has seen them and needs more. */
static bool stream_arm(struct rb_link *link, bool in, bool out, short *ret_events)
{
    (void)link;
    *ret_events = (short)((in ? POLLIN : 0) | (out ? POLLOUT : 0));
    return false;
}

static void stream_disarm(struct rb_link *link, short revents)
{
    (void)link;
    (void)revents;
}

/* Keepalive probes (rb_link_stream_new) are not sent while bytes are on their way, and the kernel
 * sends those again for a quarter of an hour.  A living peer acknowledges them, however slow it is;
 * to a peer that takes nothing because its buffer is full, no bytes are on their way. */
static void tcp_disarm(struct rb_link *link, short revents)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    if (!revents && getsockopt(link->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
        info.tcpi_unacked && info.tcpi_retransmits >= SENT_AGAIN &&
        info.tcpi_last_ack_recv >= SILENT_MS)
        shutdown(link->fd, SHUT_RDWR);
}

static void stream_close(struct rb_link *link)
{
    shutdown(link->fd, SHUT_RDWR);
    close(link->fd);
    free(link);
}

#define STREAM_OPS(its_name, its_disarm)                                                           \
    {                                                                                              \
        .name = (its_name), .send = stream_send, .receive = stream_receive, .peek = stream_peek,   \
        .consume = stream_consume, .arm = stream_arm, .disarm = (its_disarm),                      \
        .close = stream_close,                                                                     \
    }
static const struct rb_link_ops unix_ops = STREAM_OPS("unix", stream_disarm);
static const struct rb_link_ops tcp_ops = STREAM_OPS("tcp", tcp_disarm);

static void set(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

struct rb_link *rb_link_stream_new(int fd, bool tcp)
{
    struct stream *stream = rb_alloc(sizeof *stream);

    stream->link.ops = tcp ? &tcp_ops : &unix_ops;
    stream->link.fd = fd;
    if (tcp) {
        /* The kernel sizes TCP's buffers better than a constant.  Probes end the link to a host
         * that vanished; a peer that is merely slow answers them. */
        set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
        set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    } else {
        set(fd, SOL_SOCKET, SO_SNDBUF, SOCKET_BUFFER);
        set(fd, SOL_SOCKET, SO_RCVBUF, SOCKET_BUFFER);
    }
    return &stream->link;
}
