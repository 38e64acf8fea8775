/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/circle.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Wait until every member is in the circle, or one cannot be: RB_EPEER and its like. */
static int wait_ready(struct rb_coll *coll, struct rb_circle *circle, int timeout_ms,
                      struct rb_why *why)
{
    const struct timespec moment = {0, 1000000};
    uint64_t end = rb_clock_ns() + (uint64_t)timeout_ms * 1000000;
    bool ready = false;
    int err;

    for (;;) {
        err = rb_circle_ready(circle, &ready, why);
        if (err || ready)
            return err;
        if (rb_coll_over(coll))
            return rb_why_set(why, RB_EPEER, "a member left");
        if (rb_clock_ns() > end)
            return rb_why_set(why, RB_ETIMEOUT, "it was not made within %d s", timeout_ms / 1000);
        nanosleep(&moment, NULL);
    }
}

int rb_circle_agree(struct rb_coll *coll, uint64_t tag, struct rb_device *device, int timeout_ms,
                    struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why)
{
    uint8_t ticket[RB_CIRCLE_TICKET] = {0};
    struct rb_circle *circle = NULL;
    bool all = false;
    int failed = rb_circle_ticket(device, ticket, ret_none);
    int err = rb_coll_agree(coll, tag, !failed, &all, why);

    if (err || !all) {
        if (!failed)
            rb_why_set(ret_none, RB_EUNSUPPORTED, "a member has no way to the others' GPUs");
        return err;
    }
    err = rb_coll_broadcast(coll, tag + 1, 0, ticket, sizeof ticket, why);
    if (err)
        return err;
    failed =
        rb_circle_enter(device, ticket, rb_coll_rank(coll), rb_coll_size(coll), &circle, ret_none);
    if (!failed)
        failed = wait_ready(coll, circle, timeout_ms, ret_none);
    err = rb_coll_agree(coll, tag + 2, !failed, &all, why);
    if (!err && all) {
        *ret_circle = circle;
        return 0;
    }
    if (!failed)
        rb_why_set(ret_none, RB_EUNSUPPORTED, "a member could not enter");
    rb_circle_leave(circle);
    return err;
}

/* ---- Behind a death ---------------------------------------------------------------------------*/

/* What each rank says of the circle that it was in. */
struct claim {
    uint32_t number;
    int32_t rank, size;
};

/* The old ranks that are missing, if all present ranks were in one circle, in this order; 0: they
 * were not. */
static int find_gone(const struct claim *claims, int size, int *ret_gone)
{
    int n = 0, next = 0;

    for (int r = 0; r < size; r++) {
        if (!claims[r].number || claims[r].number != claims[0].number ||
            claims[r].size != claims[0].size || claims[r].rank < next ||
            claims[r].rank >= claims[r].size)
            return 0;
        while (next < claims[r].rank)
            ret_gone[n++] = next++;
        next++;
    }
    while (next < claims[0].size)
        ret_gone[n++] = next++;
    return n;
}

int rb_circle_inherit(struct rb_coll *coll, uint64_t tag, struct rb_circle_past *past,
                      int timeout_ms, struct rb_circle_coming *ret_coming, struct rb_why *ret_none,
                      struct rb_why *why)
{
    int size = rb_coll_size(coll), n = 0, err;
    RB_CLEANUP(rb_freep) struct claim *claims = rb_alloc((size_t)size * sizeof *claims);
    RB_CLEANUP(rb_freep) int *gone = rb_alloc((size_t)past->size * sizeof *gone + 1);
    struct claim mine = {past->circle ? past->number : 0, past->rank, past->size};
    struct rb_circle *circle = RB_TAKE(past->circle);

    *ret_coming = (struct rb_circle_coming){0};
    err = rb_coll_gather(coll, tag, &mine, claims, sizeof mine, why);
    if (!err && mine.number)
        n = find_gone(claims, size, gone);
    if (err || n == 0) {
        if (circle)
            rb_why_set(ret_none, RB_EUNSUPPORTED, "not all of its members were in one circle");
        rb_circle_leave(circle);
        return err;
    }
    ret_coming->on = true;
    ret_coming->until = rb_clock_ns() + (uint64_t)timeout_ms * 1000000;
    if (rb_circle_shrink(circle, gone, n, &ret_coming->circle, &ret_coming->lost))
        ret_coming->circle = NULL;
    return 0;
}

enum word { WAITING = 1, HERE, NEVER };

static enum word look(const struct rb_circle_coming *coming, struct rb_why *ret_none)
{
    bool ready = false;

    if (!coming->circle)
        *ret_none = coming->lost;
    if (!coming->circle || rb_circle_ready(coming->circle, &ready, ret_none))
        return NEVER;
    if (!ready && rb_clock_ns() > coming->until) {
        rb_why_set(ret_none, RB_ETIMEOUT, "it was not made in time");
        return NEVER;
    }
    return ready ? HERE : WAITING;
}

int rb_circle_arrive(struct rb_coll *coll, uint64_t tag, struct rb_circle_coming *coming,
                     struct rb_circle **ret_circle, struct rb_why *ret_none, struct rb_why *why)
{
    size_t size = (size_t)rb_coll_size(coll), here = 0;
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc(size);
    uint8_t mine = look(coming, ret_none);
    bool never = false;
    int err = rb_coll_gather(coll, tag, &mine, all, 1, why);

    if (err)
        return err;
    for (size_t r = 0; r < size; r++) {
        here += all[r] == HERE;
        never |= all[r] != HERE && all[r] != WAITING;
    }
    if (here < size && !never)
        return 0;
    coming->on = false;
    if (!never) {
        *ret_circle = RB_TAKE(coming->circle);
        return 0;
    }
    if (mine != NEVER)
        rb_why_set(ret_none, RB_EUNSUPPORTED, "a member gave up");
    rb_circle_leave(RB_TAKE(coming->circle));
    return 0;
}
