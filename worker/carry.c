/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/carry.h"

#include "base/arena.h"

#include <stdlib.h>

static bool is_over(void *context)
{
    return rb_coll_over(context);
}

static int by_circle(struct rb_device *device, struct rb_coll *coll, struct rb_circle *circle,
                     const struct rb_coll_move *moves, size_t n, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) struct rb_circle_move *all = rb_alloc(n * sizeof *all + 1);
    int self = rb_coll_rank(coll), err = n ? rb_device_check(device, why) : 0;

    for (size_t i = 0; i < n; i++) {
        const struct rb_coll_move *m = &moves[i];

        all[i] = (struct rb_circle_move){
            m->from, m->to, m->from == self || m->to == self ? m->bytes : NULL, m->size};
    }
    if (!err && n)
        err = rb_circle_move(circle, all, n, is_over, coll, why);
    return err;
}

static int by_links(struct rb_device *device, struct rb_coll *coll, uint64_t tag,
                    const struct rb_coll_move *moves, size_t n, struct rb_why *why)
{
    int self = rb_coll_rank(coll), err;

    for (size_t i = 0; i < n; i++)
        if (moves[i].from == self)
            rb_device_pull(device, moves[i].bytes, moves[i].size);
    err = rb_device_check(device, why);
    if (!err)
        err = rb_coll_move(coll, tag, moves, n, why);
    for (size_t i = 0; !err && i < n; i++)
        if (moves[i].to == self && moves[i].from != self)
            rb_device_push(device, moves[i].bytes, moves[i].size);
    return err;
}

int rb_carry(struct rb_device *device, struct rb_coll *coll, struct rb_circle *circle, uint64_t tag,
             const struct rb_coll_move *moves, size_t n, struct rb_why *why)
{
    return circle ? by_circle(device, coll, circle, moves, n, why)
                  : by_links(device, coll, tag, moves, n, why);
}
