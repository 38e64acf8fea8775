/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/progress_inside.h"

#include "base/clock.h"

#include <poll.h>

enum { SLICE_MS = 50 }; /* longest sleep without a look around */

int rb_progress_begin(struct rb_coll *coll, struct rb_why *why)
{
    for (int r = 0; r < coll->size; r++) {
        struct rb_lane *lane = &coll->lane[r];

        lane->n_out = lane->n_in = lane->at_out = lane->at_in = 0;
    }
    return coll->broken ? rb_why_set(why, atomic_load(&coll->broken), "%s", coll->why.text) : 0;
}

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

/* One turn over all links: 0 or an error.  Posts are waited for only if frames are behind them, or
 * if `posts` says so. */
static int turn(struct rb_coll *coll, bool posts, bool *ret_moved, bool *ret_pending,
                struct rb_why *why)
{
    *ret_moved = *ret_pending = false;
    for (int i = 1; i < coll->size; i++) {
        int rank = (coll->rank + i) % coll->size; /* not everyone at rank 0 first */
        struct rb_lane *lane = &coll->lane[rank];
        int64_t moved = rb_progress_push(coll, rank);

        *ret_moved |= moved > 0;
        if (moved >= 0 && lane->at_in < lane->n_in)
            moved = rb_progress_pull(coll, rank, why);
        if (moved < 0)
            return describe(coll, rank, (int)moved, why);
        *ret_moved |= moved > 0;
        *ret_pending |= is_pending(lane) || (posts && lane->posts);
    }
    return 0;
}

/* Sleep until a link that matters has something, or the group is cancelled. */
static void rest(struct rb_coll *coll)
{
    bool ready = false;
    int n = 0;

    for (int r = 0; r < coll->size && !ready; r++) {
        struct rb_lane *lane = &coll->lane[r];
        struct rb_link *link = coll->link[r];
        bool in = lane->at_in < lane->n_in;
        bool out = rb_lane_next(lane) && lane->blocked;

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

static int run(struct rb_coll *coll, bool posts, struct rb_why *why)
{
    uint64_t idle_since = 0;

    for (;;) {
        bool moved, pending;
        uint64_t now;
        int err;

        if (atomic_load_explicit(&coll->canceled, memory_order_relaxed))
            return rb_why_set(why, RB_ECANCELED, "the group of configuration %u was cancelled",
                              coll->configuration);
        if ((err = turn(coll, posts, &moved, &pending, why)) || !pending)
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

    return ended(coll, run(coll, false, &local), &local, why);
}

int rb_progress_flush(struct rb_coll *coll, struct rb_why *why)
{
    struct rb_why local = {{0}};

    return ended(coll, run(coll, true, &local), &local, why);
}

/* Send all posts that one link takes. */
static int nudge(struct rb_coll *coll, int rank, struct rb_why *why)
{
    struct rb_lane *lane = &coll->lane[rank];
    int64_t moved = 1;

    while (moved > 0 && lane->posts)
        moved = rb_progress_push(coll, rank);
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
