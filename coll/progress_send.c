/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/progress_inside.h"

#include "base/arena.h"
#include "base/fault.h"

#include <stdlib.h>
#include <string.h>

/* ---- Saying what to send ---- */

enum { PIECES_MOST = 64 }; /* that a link is given at once */
static const uint8_t padding[8];

static void start_outgoing(struct rb_outgoing *out, struct rb_frame frame, const void *bytes,
                           uint64_t size, const uint64_t *ready)
{
    uint32_t magic = RB_FRAME_MAGIC, kind = frame.kind;

    memcpy(out->header, &magic, 4);
    memcpy(out->header + 4, &kind, 4);
    memcpy(out->header + 8, &frame.tag, 8);
    memcpy(out->header + 16, &frame.total, 8);
    out->bytes = bytes;
    out->size = size;
    out->ready = ready;
    out->sent = 0;
    out->may_offer = false;
    out->offered = 0;
}

void rb_progress_send(struct rb_coll *coll, int rank, struct rb_frame frame, const void *bytes,
                      uint64_t size, const uint64_t *ready)
{
    struct rb_lane *lane = &coll->lane[rank];

    start_outgoing(&lane->out[lane->n_out++], frame, bytes, size, ready);
}

void rb_progress_offer(struct rb_coll *coll, int rank, struct rb_frame frame, const void *bytes,
                       uint64_t size, const uint64_t *ready)
{
    struct rb_lane *lane = &coll->lane[rank];

    rb_progress_send(coll, rank, frame, bytes, size, ready);
    lane->out[lane->n_out - 1].may_offer = size >= RB_PROGRESS_OFFER;
}

static bool is_sent(const struct rb_outgoing *out)
{
    return out->sent == rb_frame_padded(RB_FRAME_HEADER + out->size);
}

/* Header, pieces, padding: n + 2 in all. */
static struct iovec piece_of(const struct rb_outgoing *out, const struct iovec *pieces, size_t n,
                             size_t i)
{
    uint64_t end = RB_FRAME_HEADER + out->size;

    if (i == 0)
        return (struct iovec){(void *)(uintptr_t)out->header, RB_FRAME_HEADER};
    return i <= n ? pieces[i - 1] : (struct iovec){(void *)padding, rb_frame_padded(end) - end};
}

/* Send as much as the link takes: bytes.  An error is met again when the rest is sent. */
static uint64_t send_pieces(struct rb_link *link, const struct rb_outgoing *out,
                            const struct iovec *pieces, size_t n)
{
    struct iovec some[PIECES_MOST];
    uint64_t sent = 0;
    bool all = true;

    for (size_t i = 0; i < n + 2 && all;) {
        uint64_t bytes = 0;
        int64_t put;
        int filled = 0;

        for (; filled < PIECES_MOST && i < n + 2; i++) {
            some[filled] = piece_of(out, pieces, n, i);
            bytes += some[filled++].iov_len;
        }
        put = link->ops->send(link, some, filled);
        sent += put > 0 ? (uint64_t)put : 0;
        all = put == (int64_t)bytes;
    }
    return sent;
}

/* A copy of the frame for when the link takes the rest of it. */
static void keep(struct rb_lane *lane, const struct rb_outgoing *out, const struct iovec *pieces,
                 size_t n)
{
    struct rb_post *post = rb_alloc_raw(sizeof *post + out->size);
    uint8_t *to = post->bytes;

    post->next = NULL;
    post->out = *out;
    post->out.bytes = post->bytes;
    for (size_t i = 0; i < n; to += pieces[i++].iov_len)
        if (pieces[i].iov_len)
            memcpy(to, pieces[i].iov_base, pieces[i].iov_len);
    *(lane->posts ? lane->last_post : &lane->posts) = post;
    lane->last_post = &post->next;
}

void rb_progress_post(struct rb_coll *coll, int rank, struct rb_frame frame,
                      const struct iovec *pieces, size_t n)
{
    struct rb_lane *lane = &coll->lane[rank];
    struct rb_outgoing out;

    start_outgoing(&out, frame, NULL, frame.total, NULL);
    if (!lane->posts)
        out.sent = send_pieces(coll->link[rank], &out, pieces, n);
    if (is_sent(&out))
        rb_fault("worker.frame");
    else
        keep(lane, &out, pieces, n);
    atomic_fetch_add_explicit(&coll->bytes_sent, out.sent, memory_order_relaxed);
}

void rb_progress_drop_posts(struct rb_coll *coll)
{
    for (int r = 0; r < coll->size; r++)
        for (struct rb_post *post; (post = coll->lane[r].posts);) {
            coll->lane[r].posts = post->next;
            free(post);
        }
}

/* ---- A turn ---- */

/* The pieces of a frame that may go now: header, payload, padding; at most RB_PROGRESS_PIECE of
 * payload. */
static int cut(struct rb_outgoing *out, struct iovec pieces[3])
{
    uint64_t ready = out->ready ? *out->ready : out->size;
    uint64_t end = RB_FRAME_HEADER + out->size, at = out->sent;
    int n = 0;

    if (at < RB_FRAME_HEADER) {
        pieces[n++] = (struct iovec){out->header + at, RB_FRAME_HEADER - at};
        at = RB_FRAME_HEADER;
    }
    /* Only multiples of 8 before the end, so that no element is ever split. */
    ready = RB_FRAME_HEADER + (ready < out->size ? ready & ~UINT64_C(7) : ready);
    if (at < ready) {
        uint64_t size = ready - at < RB_PROGRESS_PIECE ? ready - at : RB_PROGRESS_PIECE;

        pieces[n++] = (struct iovec){(void *)(out->bytes + (at - RB_FRAME_HEADER)), size};
        at += size;
    }
    if (at >= end && at < rb_frame_padded(end))
        pieces[n++] = (struct iovec){(void *)padding, rb_frame_padded(end) - at};
    return n;
}

static void end_outgoing(struct rb_lane *lane)
{
    struct rb_post *post = lane->posts;

    if (!post) {
        lane->at_out++;
        return;
    }
    lane->posts = post->next;
    free(post);
}

/* Turn the payload into an offer if that is allowed.  False: it may become one later. */
static bool prepare(struct rb_link *link, struct rb_outgoing *out)
{
    uint32_t kind;

    if (!out->may_offer || out->offered || out->sent || !link->ops->reach ||
        !link->ops->reach->reached(link))
        return true;
    if (out->ready && *out->ready < out->size)
        return false;
    memcpy(&kind, out->header + 4, 4);
    kind |= RB_FRAME_OFFER;
    memcpy(out->header + 4, &kind, 4);
    out->offered = out->size;
    out->address = (uintptr_t)out->bytes;
    out->bytes = (const uint8_t *)&out->address;
    out->size = sizeof out->address;
    out->ready = NULL;
    return true;
}

/* Was an offer that was sent taken?  1; 0: not yet; or an error. */
static int is_taken(struct rb_link *link)
{
    bool ended = atomic_load(&link->ended);

    return link->ops->reach->taken(link) ? 1 : ended ? RB_EPEER : 0;
}

/* Bytes that the link took, or an error.  `blocked` is not set for bytes that are not ready yet. */
static int64_t say(struct rb_link *link, struct rb_lane *lane, struct rb_outgoing *out)
{
    struct iovec pieces[3];
    int n = cut(out, pieces);
    int64_t put = n ? link->ops->send(link, pieces, n) : 0;

    lane->blocked = n && put == 0;
    out->sent += put > 0 ? (uint64_t)put : 0;
    if (put > 0 && out->offered && is_sent(out))
        link->ops->reach->offer(link);
    return put;
}

int64_t rb_progress_push(struct rb_coll *coll, int rank)
{
    struct rb_link *link = coll->link[rank];
    struct rb_lane *lane = &coll->lane[rank];
    struct rb_outgoing *out = rb_lane_next(lane);
    int64_t put;
    int taken = 1;

    if (!out)
        return 0;
    lane->blocked = false;
    if (!prepare(link, out))
        return 0;
    put = say(link, lane, out);
    if (put >= 0 && is_sent(out) && out->offered)
        taken = is_taken(link);
    if (put < 0 || taken < 0)
        return put < 0 ? put : taken;
    lane->blocked |= !taken;
    if (is_sent(out) && taken) {
        put += (int64_t)out->offered;
        end_outgoing(lane);
        rb_fault("worker.frame");
    }
    atomic_fetch_add_explicit(&coll->bytes_sent, (uint64_t)put, memory_order_relaxed);
    return put;
}
