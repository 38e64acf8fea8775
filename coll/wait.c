/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the rank that speaks first, for callers whose peers do not all speak in turn. */
#include "base/clock.h"
#include "coll/group.h"

#include <poll.h>

enum { SLICE_MS = 50 };

/* The first of `from` that has bytes for this rank; -1: none.  Errors are those of its link. */
static int find(struct rb_coll *coll, const bool *from, int *ret_rank, struct rb_why *why)
{
    *ret_rank = -1;
    for (int i = 1; i < coll->size && *ret_rank < 0; i++) {
        int rank = (coll->rank + i) % coll->size;
        const uint8_t *bytes;
        int64_t have;

        if (!from[rank] || !coll->link[rank])
            continue;
        have = coll->link[rank]->ops->peek(coll->link[rank], &bytes);
        if (have < 0)
            return rb_why_set(why, (int)have, "rank %d (%s) is gone: its %s link ended", rank,
                              coll->workers[rank], coll->link[rank]->ops->name);
        if (have > 0)
            *ret_rank = rank;
    }
    return 0;
}

/* Sleep until a link or `fd` has something, or `ms` are over.  True: `fd` has something. */
static bool rest(struct rb_coll *coll, const bool *from, int fd, int ms)
{
    struct pollfd *polls = coll->polls;
    bool ready = false;
    int n = 0;

    for (int r = 0; r < coll->size && !ready; r++) {
        if (!from[r] || !coll->link[r])
            continue;
        ready = coll->link[r]->ops->arm(coll->link[r], true, false, &polls[n].events);
        polls[n].fd = coll->link[r]->fd;
        polls[n].revents = 0;
        coll->polled[n++] = r;
    }
    polls[n] = (struct pollfd){.fd = coll->wake, .events = POLLIN};
    polls[n + 1] = (struct pollfd){.fd = fd, .events = POLLIN};
    if (!ready)
        poll(polls, (nfds_t)n + 2, ms);
    for (int i = 0; i < n; i++) {
        struct rb_link *link = coll->link[coll->polled[i]];

        link->ops->disarm(link, polls[i].revents);
    }
    return polls[n + 1].revents != 0;
}

int rb_coll_wait(struct rb_coll *coll, const bool *from, int fd, int timeout_ms, int *ret_rank,
                 struct rb_why *why)
{
    uint64_t until = rb_clock_ns() + (uint64_t)timeout_ms * 1000000, now;
    int rank = -1, err = rb_progress_begin(coll, why);

    while (!err) {
        if (atomic_load_explicit(&coll->canceled, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "the group of configuration %u was cancelled",
                              coll->configuration);
        err = find(coll, from, &rank, why);
        if (err || rank >= 0 || (now = rb_clock_ns()) >= until)
            break;
        now = (until - now + 999999) / 1000000;
        if (rest(coll, from, fd, now < SLICE_MS ? (int)now : SLICE_MS))
            break;
    }
    if (!err)
        *ret_rank = rank;
    return err;
}
