/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory: two rings of bytes, each with one writer and one reader, and a unix socket.
 *
 *     writer: copy, head += n, look whether the reader sleeps, ring the bell
 *     reader: use,  tail += n, look whether the writer sleeps, ring the bell
 *
 * The bell is a byte on the socket.  A side that wants to sleep first says so, then looks once
 * more, then polls the socket.  So no wake-up is lost, many links can be waited for at once, and
 * the end of the peer arrives where the bell does.  head and tail count bytes for ever; what the
 * other side writes into them is checked, because it may be anything. */
#include "coll/link.h"

#include "base/arena.h"
#include "base/error.h"
#include "base/sealed.h"
#include "coll/pass.h"
#include "coll/reach.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    RING = 512 * 1024, /* a power of two; larger ones are no faster */
    PUBLISH = 32 * 1024,
    CONTROL = 4096,
};
static const size_t total = CONTROL + 2 * (size_t)RING;

/* One cache line for each side that writes it. */
struct ring {
    _Alignas(64) _Atomic uint64_t head; /* written by the writer */
    _Atomic uint32_t withdrawn;
    struct rb_reach_sign sign;          /* for the reader, to try to fetch from the writer */
    _Alignas(64) _Atomic uint64_t tail; /* written by the reader */
    _Atomic uint64_t taken;             /* offers */
    _Atomic uint32_t reached;           /* the reader can fetch from the writer */
    _Alignas(64) _Atomic uint32_t reader_sleeps;
    _Alignas(64) _Atomic uint32_t writer_sleeps;
};
_Static_assert(2 * sizeof(struct ring) <= CONTROL, "both rings' counters fit");

struct shared {
    struct rb_link link;
    uint8_t *memory;
    struct ring *out, *in;
    uint8_t *out_bytes;
    const uint8_t *in_bytes;
    uint64_t head, tail; /* this side's own counters, which the other side cannot touch */
    uint64_t seen_head, seen_tail;
    struct rb_reach peer;
    uint64_t offered, took; /* offers; the other side's count of them is in its ring */
    bool tried;             /* whether the peer can be reached */
    int given;              /* a file; -1: none, or it was taken already */
};

/* Call it after a counter was stored.  That store and this load, and the sleeper's store and load
 * in arm, are sequentially consistent: at least one of the two sees the other's store. */
static void ring_bell(struct shared *s, _Atomic uint32_t *sleeps)
{
    if (!atomic_load(sleeps))
        return;
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    /* A full socket has bells enough; a broken one is noticed by the side that polls it. */
    if (send(s->link.fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
        atomic_store(&s->link.ended, true);
}

/* How much can be written: -1 if the reader's counter is absurd. */
static int64_t room(struct shared *s)
{
    if (s->head - s->seen_tail > RING - PUBLISH)
        s->seen_tail = atomic_load(&s->out->tail);
    if (s->head - s->seen_tail > RING)
        return -1;
    return (int64_t)(RING - (s->head - s->seen_tail));
}

/* The peer shows its sign before its first bytes, or with its welcome. */
static void try_reach(struct shared *s)
{
    s->tried = true;
    if (rb_reach_try(&s->peer, &s->in->sign))
        atomic_store(&s->in->reached, 1);
}

static int64_t waiting(struct shared *s)
{
    if (s->seen_head - s->tail < 8)
        s->seen_head = atomic_load(&s->in->head);
    if (!s->tried && s->seen_head)
        try_reach(s);
    if (s->seen_head - s->tail > RING)
        return -1;
    return (int64_t)(s->seen_head - s->tail);
}

/* Copy into the ring, which may wrap.  The reader sees the bytes once they are published. */
static void put(struct shared *s, const uint8_t *bytes, size_t size)
{
    size_t at = s->head & (RING - 1), first = RING - at < size ? RING - at : size;

    memcpy(s->out_bytes + at, bytes, first);
    memcpy(s->out_bytes, bytes + first, size - first);
    s->head += size;
}

static void publish(struct shared *s)
{
    atomic_store(&s->out->head, s->head);
    ring_bell(s, &s->out->reader_sleeps);
}

static int64_t shared_send(struct rb_link *link, const struct iovec *pieces, int count)
{
    struct shared *s = (struct shared *)link;
    size_t sent = 0, hidden = 0;

    if (atomic_load_explicit(&link->ended, memory_order_relaxed))
        return RB_EPEER;
    for (int i = 0; i < count; i++) {
        const uint8_t *bytes = pieces[i].iov_base;
        size_t left = pieces[i].iov_len;

        while (left) {
            int64_t space = room(s);
            size_t size = left < PUBLISH - hidden ? left : PUBLISH - hidden;

            if (space < 0)
                return RB_EINTERNAL;
            if (space == 0)
                goto full;
            size = size < (size_t)space ? size : (size_t)space;
            put(s, bytes, size);
            bytes += size;
            left -= size;
            sent += size;
            hidden += size;
            if (hidden == PUBLISH) {
                publish(s);
                hidden = 0;
            }
        }
    }
full:
    if (hidden)
        publish(s);
    return (int64_t)sent;
}

/* Only disarm and this side's own sends find the end, so what was written before it is seen
 * here. */
static int64_t shared_peek(struct rb_link *link, const uint8_t **ret)
{
    struct shared *s = (struct shared *)link;
    int64_t size = waiting(s);
    size_t at = s->tail & (RING - 1);

    if (size < 0)
        return RB_EINTERNAL;
    if (size == 0)
        return atomic_load(&link->ended) ? RB_EPEER : 0;
    *ret = s->in_bytes + at;
    return size < (int64_t)(RING - at) ? size : (int64_t)(RING - at);
}

static void shared_consume(struct rb_link *link, size_t size)
{
    struct shared *s = (struct shared *)link;

    s->tail += size;
    atomic_store(&s->in->tail, s->tail);
    ring_bell(s, &s->in->writer_sleeps);
}

static int64_t shared_receive(struct rb_link *link, void *to, size_t size)
{
    const uint8_t *bytes;
    int64_t have = shared_peek(link, &bytes);

    if (have <= 0)
        return have;
    size = size < (size_t)have ? size : (size_t)have;
    memcpy(to, bytes, size);
    shared_consume(link, size);
    return (int64_t)size;
}

/* ---- Reaching the peer's own memory ---- */

static bool shared_reached(struct rb_link *link)
{
    return atomic_load(&((struct shared *)link)->out->reached) != 0;
}

static void shared_offer(struct rb_link *link)
{
    ((struct shared *)link)->offered++;
}

static bool shared_taken(struct rb_link *link)
{
    struct shared *s = (struct shared *)link;

    return atomic_load(&s->out->taken) >= s->offered;
}

static void shared_take(struct rb_link *link)
{
    struct shared *s = (struct shared *)link;

    atomic_store(&s->in->taken, ++s->took);
    ring_bell(s, &s->in->writer_sleeps);
}

static int shared_fetch(struct rb_link *link, void *to, uint64_t from, size_t size)
{
    struct shared *s = (struct shared *)link;
    int err = rb_reach_read(&s->peer, to, from, size);

    atomic_thread_fence(memory_order_seq_cst);
    return atomic_load(&s->in->withdrawn) ? RB_EPEER : err;
}

static void shared_withdraw(struct rb_link *link)
{
    atomic_store(&((struct shared *)link)->out->withdrawn, 1);
    atomic_thread_fence(memory_order_seq_cst);
}

static const struct rb_reach_ops reach_ops = {
    .reached = shared_reached,
    .offer = shared_offer,
    .taken = shared_taken,
    .take = shared_take,
    .fetch = shared_fetch,
    .withdraw = shared_withdraw,
};

/* ---- Sleeping and ending ---- */

static bool has_room(struct shared *s)
{
    return shared_taken(&s->link) && room(s) != 0;
}

static bool shared_arm(struct rb_link *link, bool in, bool out, short *ret_events)
{
    struct shared *s = (struct shared *)link;

    *ret_events = POLLIN;
    if (in)
        atomic_store(&s->in->reader_sleeps, 1);
    if (out)
        atomic_store(&s->out->writer_sleeps, 1);
    return atomic_load(&link->ended) || (in && waiting(s) != 0) || (out && has_room(s));
}

/* Take the bells that have rung, and a file that came with one; false: there are no more. */
static bool hear(struct shared *s)
{
    char bells[256];
    ssize_t got = rb_pass_receive(s->link.fd, bells, sizeof bells, &s->given);

    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        atomic_store(&s->link.ended, true);
    return got > 0;
}

static void shared_disarm(struct rb_link *link, short revents)
{
    struct shared *s = (struct shared *)link;

    atomic_store_explicit(&s->in->reader_sleeps, 0, memory_order_relaxed);
    atomic_store_explicit(&s->out->writer_sleeps, 0, memory_order_relaxed);
    if (revents)
        hear(s);
}

/* The file goes with a bell. */
static void shared_give(struct rb_link *link, int file)
{
    (void)rb_pass_send(link->fd, "", 1, file);
}

static int shared_given(struct rb_link *link)
{
    struct shared *s = (struct shared *)link;
    int file;

    while (hear(s))
        continue;
    file = s->given;
    s->given = -1;
    return file;
}

static void shared_close(struct rb_link *link)
{
    struct shared *s = (struct shared *)link;

    shutdown(link->fd, SHUT_RDWR);
    close(link->fd);
    if (s->given >= 0)
        close(s->given);
    munmap(s->memory, total);
    free(s);
}

static const struct rb_link_ops shared_ops = {
    .name = "shared memory",
    .send = shared_send,
    .receive = shared_receive,
    .peek = shared_peek,
    .consume = shared_consume,
    .arm = shared_arm,
    .disarm = shared_disarm,
    .close = shared_close,
    .give = shared_give,
    .given = shared_given,
    .reach = &reach_ops,
};

int rb_link_shared_create(void)
{
    return rb_sealed_create("rubato-link", total);
}

struct rb_link *rb_link_shared_new(int fd, int memory, int side)
{
    struct shared *s;
    uint8_t *map;

    if (rb_sealed_size(memory) != (int64_t)total)
        return NULL;
    map = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    if (map == MAP_FAILED)
        return NULL;
    s = rb_alloc(sizeof *s);
    s->link.ops = &shared_ops;
    s->link.fd = fd;
    s->given = -1;
    s->memory = map;
    s->out = (struct ring *)map + side;
    s->in = (struct ring *)map + !side;
    s->out_bytes = map + CONTROL + (size_t)side * RING;
    s->in_bytes = map + CONTROL + (size_t)!side * RING;
    rb_reach_open(&s->peer, fd);
    rb_reach_sign(&s->peer, &s->out->sign);
    return &s->link;
}
