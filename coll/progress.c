/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/progress.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fault.h"
#include "coll/add.h"
#include "coll/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE = 256 * 1024,    /* most that one link moves before the next has its turn */
    ADD_PIECE = 32 * 1024, /* added before the sender hears that there is room */
    OFFER = 256 * 1024,    /* worth being fetched; and how much of it is fetched at once */
    SLICE_MS = 50,         /* longest sleep without a look around */
};
static const uint32_t magic = 0x31464252; /* "RBF1" */

static uint64_t padded(uint64_t size)
{
    return (size + 7) & ~UINT64_C(7);
}

/* ---- Saying what to move ---- */

int rb_progress_begin(struct rb_coll *coll, struct rb_why *why)
{
    for (int r = 0; r < coll->size; r++) {
        struct rb_lane *lane = &coll->lane[r];

        lane->n_out = lane->n_in = lane->at_out = lane->at_in = 0;
    }
    return coll->broken ? rb_why_set(why, atomic_load(&coll->broken), "%s", coll->why.text) : 0;
}

static void start_outgoing(struct rb_outgoing *out, struct rb_frame frame, const void *bytes,
                           uint64_t size, const uint64_t *ready)
{
    uint32_t kind = frame.kind;

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
    lane->out[lane->n_out - 1].may_offer = size >= OFFER;
}

void rb_progress_post(struct rb_coll *coll, int rank, struct rb_frame frame, const void *bytes,
                      uint64_t size)
{
    struct rb_lane *lane = &coll->lane[rank];
    struct rb_post *post = rb_alloc(sizeof *post + size);

    memcpy(post->bytes, bytes, size);
    start_outgoing(&post->out, frame, post->bytes, size, NULL);
    *(lane->posts ? lane->last_post : &lane->posts) = post;
    lane->last_post = &post->next;
}

void rb_progress_drop_posts(struct rb_coll *coll)
{
    for (int r = 0; r < coll->size; r++)
        for (struct rb_post *post; (post = coll->lane[r].posts);) {
            coll->lane[r].posts = post->next;
            free(post);
        }
}

const uint64_t *rb_progress_receive(struct rb_coll *coll, int rank, struct rb_frame frame, void *to,
                                    uint64_t size)
{
    struct rb_lane *lane = &coll->lane[rank];
    struct rb_incoming *in = &lane->in[lane->n_in++];

    in->frame = frame;
    in->to = to;
    in->size = size;
    in->had = in->got = 0;
    in->sum = NULL;
    in->offered = false;
    return &in->had;
}

void rb_progress_add(struct rb_coll *coll, int rank, struct rb_frame frame, struct rb_summing *sum,
                     uint64_t size)
{
    rb_progress_receive(coll, rank, frame, NULL, size);
    coll->lane[rank].in[coll->lane[rank].n_in - 1].sum = sum;
}

/* ---- Sending ---- */

/* The pieces of a frame that may go now: header, payload, padding; at most PIECE of payload. */
static int cut(struct rb_outgoing *out, struct iovec pieces[3])
{
    static const uint8_t zeros[8];
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
        uint64_t size = ready - at < PIECE ? ready - at : PIECE;

        pieces[n++] = (struct iovec){(void *)(out->bytes + (at - RB_FRAME_HEADER)), size};
        at += size;
    }
    if (at >= end && at < padded(end))
        pieces[n++] = (struct iovec){(void *)zeros, padded(end) - at};
    return n;
}

/* What goes next; NULL: nothing. */
static struct rb_outgoing *next_outgoing(struct rb_lane *lane)
{
    if (lane->posts)
        return &lane->posts->out;
    return lane->at_out < lane->n_out ? &lane->out[lane->at_out] : NULL;
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

/* A payload becomes an offer if it may; false: it may later. */
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

/* An offer that was said waits until it is taken: 1; 0: not yet; or an error. */
static int is_taken(struct rb_link *link)
{
    bool ended = atomic_load(&link->ended);

    return link->ops->reach->taken(link) ? 1 : ended ? RB_EPEER : 0;
}

static bool is_sent(const struct rb_outgoing *out)
{
    return out->sent == padded(RB_FRAME_HEADER + out->size);
}

/* Bytes that the link took, or an error.  What is not ready yet is no reason to wait for it. */
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

/* Bytes moved, or an error. */
static int64_t push(struct rb_coll *coll, struct rb_link *link, struct rb_lane *lane,
                    struct rb_outgoing *out)
{
    int64_t put;
    int taken = 1;

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

/* ---- Receiving ---- */

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
    uint32_t is_magic, kind;
    struct rb_frame found;

    memcpy(&is_magic, in->header, 4);
    memcpy(&kind, in->header + 4, 4);
    memcpy(&found.tag, in->header + 8, 8);
    memcpy(&found.total, in->header + 16, 8);
    if (is_magic != magic)
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

/* How far everyone is in. */
static void update_complete(struct rb_coll *coll, struct rb_summing *sum)
{
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < coll->size; r++) {
        const struct rb_lane *lane = &coll->lane[r];

        if (lane->n_in && lane->in[0].sum == sum && lane->in[0].had < least)
            least = lane->in[0].had;
    }
    sum->complete = least;
}

/* The first to reach an element adds it to ours, the others to what is there. */
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

/* Some of what is offered: bytes, or an error. */
static int64_t fetch(struct rb_coll *coll, struct rb_link *link, struct rb_incoming *in)
{
    uint64_t left = in->size - in->had, size = left < OFFER ? left : OFFER;
    uint8_t *to = in->sum ? coll->fetched : in->to + in->had;
    int err;

    if (in->sum && !to)
        to = coll->fetched = rb_alloc(OFFER);
    err = link->ops->reach->fetch(link, to, in->address + in->had, size);
    if (err)
        return err;
    if (in->sum)
        add(coll, in, to, size / 4);
    else
        in->had += size;
    if (in->had == in->size)
        link->ops->reach->take(link);
    return (int64_t)size;
}

static bool is_through(const struct rb_incoming *in)
{
    return in->got == padded(RB_FRAME_HEADER + (in->offered ? sizeof in->address : in->size)) &&
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
        got = link->ops->receive(link, padding, padded(end) - in->got);
    } else if (in->sum) {
        got = pull_sum(coll, link, in);
    } else {
        uint64_t left = in->size - in->had;

        got = link->ops->receive(link, in->to + in->had, left < PIECE ? left : PIECE);
        if (got > 0)
            in->had += (uint64_t)got;
    }
    if (got > 0)
        in->got += (uint64_t)got;
    return got;
}

static int64_t pull(struct rb_coll *coll, int rank, struct rb_lane *lane, struct rb_why *why)
{
    int64_t moved = 0;

    while (lane->at_in < lane->n_in && moved < PIECE) {
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

/* ---- Running ---- */

static bool is_pending(const struct rb_lane *lane)
{
    return lane->at_out < lane->n_out || lane->at_in < lane->n_in;
}

static int describe(struct rb_coll *coll, int rank, int err, struct rb_why *why)
{
    if (err == RB_EPEER && !atomic_load(&coll->link[rank]->ended))
        return rb_why_set(why, err, "rank %d (%s) is gone from this call", rank,
                          coll->workers[rank]);
    if (err == RB_EPEER)
        return rb_why_set(why, err, "rank %d (%s) is gone: its %s link ended", rank,
                          coll->workers[rank], coll->link[rank]->ops->name);
    if (err == RB_EINTERNAL && !why->text[0])
        return rb_why_set(why, err, "rank %d (%s) broke the rules of the %s link", rank,
                          coll->workers[rank], coll->link[rank]->ops->name);
    return err;
}

/* One turn over all links: 0 or an error. */
static int turn(struct rb_coll *coll, bool *ret_moved, bool *ret_pending, struct rb_why *why)
{
    *ret_moved = *ret_pending = false;
    for (int i = 1; i < coll->size; i++) {
        int rank = (coll->rank + i) % coll->size; /* not everyone at rank 0 first */
        struct rb_lane *lane = &coll->lane[rank];
        struct rb_outgoing *out = next_outgoing(lane);
        int64_t moved = 0;

        if (out)
            moved = push(coll, coll->link[rank], lane, out);
        *ret_moved |= moved > 0;
        if (moved >= 0 && lane->at_in < lane->n_in)
            moved = pull(coll, rank, lane, why);
        if (moved < 0)
            return describe(coll, rank, (int)moved, why);
        *ret_moved |= moved > 0;
        *ret_pending |= is_pending(lane);
    }
    return 0;
}

/* Sleep until a link that matters has something, or someone cancels. */
static void rest(struct rb_coll *coll)
{
    bool ready = false;
    int n = 0;

    for (int r = 0; r < coll->size && !ready; r++) {
        struct rb_lane *lane = &coll->lane[r];
        struct rb_link *link = coll->link[r];
        bool in = lane->at_in < lane->n_in;
        bool out = next_outgoing(lane) && lane->blocked;

        if (!in && !out) /* done, or waits for what another link brings */
            continue;
        ready = link->ops->arm(link, in, out, &coll->polls[n].events);
        coll->polls[n].fd = link->fd;
        coll->polls[n].revents = 0;
        coll->polled[n++] = r;
    }
    if (!ready) {
        coll->polls[n] = (struct pollfd){.fd = coll->wake, .events = POLLIN};
        poll(coll->polls, (nfds_t)n + 1, SLICE_MS);
    }
    for (int i = 0; i < n; i++) {
        struct rb_link *link = coll->link[coll->polled[i]];

        link->ops->disarm(link, coll->polls[i].revents);
    }
}

static void relax(void)
{
    for (int i = 0; i < 16; i++)
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Look a little longer when looking paid, or would have; shorter when the sleep was long. */
static void adapt(struct rb_coll *coll, uint64_t waited_ns)
{
    if (waited_ns < 2 * coll->spin_max_ns)
        coll->spin_ns *= 2;
    else
        coll->spin_ns /= 2;
    if (coll->spin_ns > coll->spin_max_ns)
        coll->spin_ns = coll->spin_max_ns;
    if (coll->spin_ns < 500)
        coll->spin_ns = 500;
}

static int run(struct rb_coll *coll, struct rb_why *why)
{
    uint64_t idle_since = 0;

    for (;;) {
        bool moved, pending;
        uint64_t now;
        int err;

        if (atomic_load_explicit(&coll->canceled, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "the group of configuration %u was cancelled",
                              coll->configuration);
        if ((err = turn(coll, &moved, &pending, why)) || !pending)
            return err;
        if (moved) {
            idle_since = 0;
            continue;
        }
        now = rb_clock_ns();
        if (!idle_since)
            idle_since = now;
        if (now - idle_since < coll->spin_ns) {
            relax();
            continue;
        }
        rest(coll);
        adapt(coll, rb_clock_ns() - idle_since);
    }
}

/* An error ends the group. */
static int ended(struct rb_coll *coll, int err, const struct rb_why *local, struct rb_why *why)
{
    for (int r = 0; err && r < coll->size; r++)
        if (coll->link[r] && coll->link[r]->ops->reach)
            coll->link[r]->ops->reach->withdraw(coll->link[r]);
    if (err) {
        coll->why = *local;
        atomic_store(&coll->broken, err);
        rb_why_set(why, err, "%s", local->text);
    }
    return err;
}

int rb_progress_run(struct rb_coll *coll, struct rb_why *why)
{
    struct rb_why local = {{0}};

    return ended(coll, run(coll, &local), &local, why);
}

/* All that one link takes. */
static int nudge(struct rb_coll *coll, int rank, struct rb_why *why)
{
    struct rb_lane *lane = &coll->lane[rank];
    int64_t moved = 1;

    while (moved > 0 && lane->posts)
        moved = push(coll, coll->link[rank], lane, &lane->posts->out);
    return moved < 0 ? describe(coll, rank, (int)moved, why) : 0;
}

int rb_progress_nudge(struct rb_coll *coll, struct rb_why *why)
{
    struct rb_why local = {{0}};
    int err = 0;

    for (int r = 0; r < coll->size && !err; r++)
        err = nudge(coll, r, &local);
    return ended(coll, err, &local, why);
}
