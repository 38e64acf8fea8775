/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/circle.h"

#include "base/arena.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Does everyone say yes? */
static int all_agree(struct rb_coll *coll, uint64_t tag, bool yes, bool *ret_all,
                     struct rb_why *why)
{
    size_t size = (size_t)rb_coll_size(coll);
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc(size);
    uint8_t mine = yes;
    int err = rb_coll_gather(coll, tag, &mine, all, 1, why);

    *ret_all = !err;
    for (size_t r = 0; !err && r < size; r++)
        *ret_all &= all[r] == 1;
    return err;
}

/* Until everyone is in, or will not be: RB_EPEER and its like. */
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
    int err = all_agree(coll, tag, !failed, &all, why);

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
    err = all_agree(coll, tag + 2, !failed, &all, why);
    if (!err && all) {
        *ret_circle = circle;
        return 0;
    }
    if (!failed)
        rb_why_set(ret_none, RB_EUNSUPPORTED, "a member could not enter");
    rb_circle_leave(circle);
    return err;
}
