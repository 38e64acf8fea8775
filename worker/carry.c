/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/carry.h"

int rb_carry(struct rb_device *device, struct rb_coll *coll, uint64_t tag,
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
