/* SPDX-License-Identifier: Apache-2.0 */
/* A link: a stream of bytes to one peer, and the sign of its death.
 *
 * progress > [link] > stream (unix, TCP) | shared (memory, with a unix socket as its bell)
 *
 * Every link has a socket whose end is the end of the peer: the kernel closes it when a process
 * dies, however it dies.  No slot blocks; a caller that can move nothing arms the links that it
 * waits for, polls their sockets, and disarms them.  One thread at a time. */
#ifndef RB_COLL_LINK_H
#define RB_COLL_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rb_link {
    const struct rb_link_ops *ops;
    int fd;
    atomic_bool ended; /* nothing more will arrive beyond what is here; set by the slots */
};

/* All slots are filled except those that say when they are not. */
struct rb_link_ops {
    const char *name; /* "shared memory", "unix", "tcp" */

    /* Take bytes from the front of `pieces`: how many; 0 when there is no room; RB_EPEER. */
    int64_t (*send)(struct rb_link *link, const struct iovec *pieces, int count);

    /* Copy up to `size` bytes that have arrived: how many; 0 for none yet; RB_EPEER when none are
     * left and the peer is gone; RB_EINTERNAL when the peer broke the link's own rules. */
    int64_t (*receive)(struct rb_link *link, void *to, size_t size);

    /* Show bytes that have arrived, in place, until the next call; returns as receive.
     * Fewer than 8 are shown only if no more have arrived, or a ring wraps behind them. */
    int64_t (*peek)(struct rb_link *link, const uint8_t **ret);
    void (*consume)(struct rb_link *link, size_t size); /* at most what peek showed */

    /* Get ready to sleep until bytes (in) or room (out) come.  True: there is something to do
     * already, do not sleep.  Else poll `fd` for the returned events, then disarm. */
    bool (*arm)(struct rb_link *link, bool in, bool out, short *ret_events);
    void (*disarm)(struct rb_link *link, short revents);

    void (*close)(struct rb_link *link); /* frees the link too */

    /* give: pass a file to the peer, if the link takes it now.  given: the file that the peer has
     * given, which is the caller's from now on; -1: none has arrived.  Both NULL: this link can
     * give none. */
    void (*give)(struct rb_link *link, int file);
    int (*given)(struct rb_link *link);

    const struct rb_reach_ops *reach; /* NULL: the peer's memory is out of reach */
};

/* Large pieces of memory need not go through a link between two processes of one host.  One side
 * offers, which means that it says in its stream where they lie; the other fetches them, and says
 * that they are taken.  Until then the offering side leaves them as they are, or withdraws. */
struct rb_reach_ops {
    /* Has the peer found that it can fetch from this side?  It tries by itself, soon. */
    bool (*reached)(struct rb_link *link);

    void (*offer)(struct rb_link *link); /* after the offer was sent; one at a time */
    bool (*taken)(struct rb_link *link); /* the peer has taken it; until then arm's `out` waits for
                                          * this */
    void (*take)(struct rb_link *link);  /* the fetching side: all of the offer was fetched */

    /* Copy `size` bytes of the peer's memory at `from`: 0; RB_EPEER when the peer is gone, has
     * withdrawn and may have changed them since, or has no such memory. */
    int (*fetch)(struct rb_link *link, void *to, uint64_t from, size_t size);

    /* Whatever the peer fetches from now on counts for nothing. */
    void (*withdraw)(struct rb_link *link);
};

/* A connected, non-blocking socket, which the link owns from now on. */
struct rb_link *rb_link_stream_new(int fd, bool tcp);

/* Memory of two rings; `side` (0 or 1) is the ring that this side writes.  `memory` is a memfd from
 * rb_link_shared_create; it is mapped and left open.  On success the link owns the socket.  NULL
 * where the memory is not what it should be. */
struct rb_link *rb_link_shared_new(int fd, int memory, int side);

/* A sealed memfd, or -1. */
int rb_link_shared_create(void);

#endif
