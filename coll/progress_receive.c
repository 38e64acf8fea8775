/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/progress_inside.h"

#include "base/arena.h"
#include "coll/add.h"

#include <string.h>

enum { ADD_PIECE = 32 * 1024 }; /* added before the sender hears that there is room */

/* ---- Saying what to receive ---- */

const uint64_t *rb_progress_receive(struct rb_coll *coll, int rank, struct rb_frame frame, void *to,
                                    uint64_t size)
{
    struct rb_lane *lane = &coll->lane[rank];
    struct rb_incoming *in = &lane->in[lane->n_in++];

    in->frame = frame;
    in->to = to;
    in->room = in->size = size;
    in->n_more = 0;
    in->had = in->got = 0;
    in->sum = NULL;
    in->offered = false;
    return &in->had;
}

void rb_progress_scatter(struct rb_coll *coll, int rank, struct rb_frame frame,
                         const struct iovec *pieces, size_t n)
{
    struct rb_lane *lane = &coll->lane[rank];
    struct rb_incoming *in = &lane->in[lane->n_in];

    rb_progress_receive(coll, rank, frame, NULL, frame.total);
    in->room = 0;
    in->more = pieces;
    in->n_more = n;
}

void rb_progress_add(struct rb_coll *coll, int rank, struct rb_frame frame, struct rb_summing *sum,
                     uint64_t size)
{
    rb_progress_receive(coll, rank, frame, NULL, size);
    coll->lane[rank].in[coll->lane[rank].n_in - 1].sum = sum;
}

/* ---- A turn ---- */

static const char *kind_text(uint32_t kind)
{
    switch (kind) {
    case RB_FRAME_SUM_WHOLE:
    case RB_FRAME_SUM_PART:
    case RB_FRAME_SUM_TOTAL:
        return "a sum";
    case RB_FRAME_GATHER:
        return "a gather";
    case RB_FRAME_BROADCAST:
        return "a broadcast";
    case RB_FRAME_MESSAGE:
        return "a message";
    default:
        return "an unknown call";
    }
}

static int check_header(struct rb_coll *coll, int rank, struct rb_incoming *in, struct rb_why *why)
{
    uint32_t magic, kind;
    struct rb_frame found;

    memcpy(&magic, in->header, 4);
    memcpy(&kind, in->header + 4, 4);
    memcpy(&found.tag, in->header + 8, 8);
    memcpy(&found.total, in->header + 16, 8);
    if (magic != RB_FRAME_MAGIC)
        return rb_why_set(why, RB_EINTERNAL, "rank %d (%s) sent bytes that are no frame", rank,
                          coll->workers[rank]);
    in->offered = kind & RB_FRAME_OFFER;
    kind &= ~(uint32_t)RB_FRAME_OFFER;
    if (in->offered && (!coll->link[rank]->ops->reach || !in->size))
        return rb_why_set(why, RB_EINTERNAL, "rank %d (%s) offers what cannot be fetched", rank,
                          coll->workers[rank]);
    if (kind == in->frame.kind && found.tag == in->frame.tag && found.total == in->frame.total)
        return 0;
    return rb_why_set(why, RB_EINTERNAL,
                      "ranks disagree: rank %d (%s) is in %s with tag %#llx of %llu bytes, rank %d "
                      "in %s with tag %#llx of %llu bytes",
                      rank, coll->workers[rank], kind_text(kind), (unsigned long long)found.tag,
                      (unsigned long long)found.total, coll->rank, kind_text(in->frame.kind),
                      (unsigned long long)in->frame.tag, (unsigned long long)in->frame.total);
}

/* Find how far the summands of every rank are in. */
static void update_complete(struct rb_coll *coll, struct rb_summing *sum)
{
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < coll->size; r++) {
        const struct rb_lane *lane = &coll->lane[r];
        int i = 0;

        while (i < lane->n_in && lane->in[i].sum != sum)
            i++;
        if (i < lane->n_in && lane->in[i].had < least)
            least = lane->in[i].had;
    }
    sum->complete = least;
}

/* The first summand that reaches an element is added to this rank's own, the others to the
 * result. */
static void add(struct rb_coll *coll, struct rb_incoming *in, const uint8_t *bytes, size_t n)
{
    struct rb_summing *sum = in->sum;
    size_t at = in->had / 4, fresh = at < sum->started ? sum->started - at : 0;

    fresh = fresh < n ? fresh : n;
    rb_add(sum->out + at, sum->out + at, bytes, fresh);
    rb_add(sum->out + at + fresh, sum->in + at + fresh, bytes + 4 * fresh, n - fresh);
    if (at + n > sum->started)
        sum->started = at + n;
    in->had += 4 * n;
    update_complete(coll, sum);
}

/* Add what has arrived: bytes, or an error. */
static int64_t pull_sum(struct rb_coll *coll, struct rb_link *link, struct rb_incoming *in)
{
    const uint8_t *bytes;
    int64_t have = link->ops->peek(link, &bytes);
    size_t n;

    if (have < 4)
        return have > 0 && atomic_load(&link->ended) ? RB_EPEER : have < 0 ? have : 0;
    n = (size_t)((uint64_t)have < in->size - in->had ? (uint64_t)have : in->size - in->had);
    n = (n < ADD_PIECE ? n : ADD_PIECE) / 4;
    add(coll, in, bytes, n);
    link->ops->consume(link, 4 * n);
    return (int64_t)(4 * n);
}

/* For a frame that is not complete: how much of the next bytes has its place at in->to. */
static uint64_t find_place(struct rb_incoming *in)
{
    for (; !in->room; in->more++, in->n_more--) {
        in->to = in->more->iov_base;
        in->room = in->more->iov_len;
    }
    return in->room;
}

static void placed(struct rb_incoming *in, uint64_t size)
{
    in->to += size;
    in->room -= size;
    in->had += size;
}

/* Receive bytes into their place: how many, or an error. */
static int64_t pull_bytes(struct rb_link *link, struct rb_incoming *in)
{
    uint64_t room = find_place(in);
    int64_t got =
        link->ops->receive(link, in->to, room < RB_PROGRESS_PIECE ? room : RB_PROGRESS_PIECE);

    if (got > 0)
        placed(in, (uint64_t)got);
    return got;
}

/* Fetch some of an offer: bytes, or an error. */
static int64_t fetch(struct rb_coll *coll, struct rb_link *link, struct rb_incoming *in)
{
    uint64_t left = in->sum ? in->size - in->had : find_place(in);
    uint64_t size = left < RB_PROGRESS_OFFER ? left : RB_PROGRESS_OFFER;
    uint8_t *to = in->sum ? coll->fetched : in->to;
    int err;

    if (in->sum && !to)
        to = coll->fetched = rb_alloc(RB_PROGRESS_OFFER);
    err = link->ops->reach->fetch(link, to, in->address + in->had, size);
    if (err)
        return err;
    if (in->sum)
        add(coll, in, to, size / 4);
    else
        placed(in, size);
    if (in->had == in->size)
        link->ops->reach->take(link);
    return (int64_t)size;
}

static bool is_through(const struct rb_incoming *in)
{
    return in->got ==
               rb_frame_padded(RB_FRAME_HEADER + (in->offered ? sizeof in->address : in->size)) &&
           in->had == in->size;
}

/* One step of a frame: bytes, or an error. */
static int64_t pull_some(struct rb_coll *coll, int rank, struct rb_incoming *in, struct rb_why *why)
{
    struct rb_link *link = coll->link[rank];
    uint64_t end = RB_FRAME_HEADER + in->size;
    size_t address = in->got - RB_FRAME_HEADER;
    uint8_t padding[8];
    int64_t got;
    int err;

    if (in->offered && address == sizeof in->address)
        return fetch(coll, link, in);

    if (in->got < RB_FRAME_HEADER) {
        got = link->ops->receive(link, in->header + in->got, RB_FRAME_HEADER - in->got);
        if (got > 0 && in->got + (uint64_t)got == RB_FRAME_HEADER)
            if ((err = check_header(coll, rank, in, why)))
                return err;
    } else if (in->offered) {
        got = link->ops->receive(link, (uint8_t *)&in->address + address,
                                 sizeof in->address - address);
    } else if (in->got >= end) {
        got = link->ops->receive(link, padding, rb_frame_padded(end) - in->got);
    } else if (in->sum) {
        got = pull_sum(coll, link, in);
    } else {
        got = pull_bytes(link, in);
    }
    if (got > 0)
        in->got += (uint64_t)got;
    return got;
}

int64_t rb_progress_pull(struct rb_coll *coll, int rank, struct rb_why *why)
{
    struct rb_lane *lane = &coll->lane[rank];
    int64_t moved = 0;

    while (lane->at_in < lane->n_in && moved < RB_PROGRESS_PIECE) {
        struct rb_incoming *in = &lane->in[lane->at_in];
        int64_t got = pull_some(coll, rank, in, why);

        if (got < 0)
            return got;
        if (is_through(in))
            lane->at_in++;
        else if (got == 0)
            break;
        moved += got;
    }
    return moved;
}
