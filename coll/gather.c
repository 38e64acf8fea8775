/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/group.h"

#include "base/arena.h"

#include <string.h>

int rb_coll_gather(struct rb_coll *coll, uint64_t tag, const void *mine, void *all, size_t bytes,
                   struct rb_why *why)
{
    struct rb_frame frame = {RB_FRAME_GATHER, tag, bytes};
    uint8_t *to = all;
    int err = rb_progress_begin(coll, why);

    if (err)
        return err;
    for (int r = 0; r < coll->size; r++) {
        if (r == coll->rank)
            continue;
        rb_progress_send(coll, r, frame, mine, bytes, NULL);
        rb_progress_receive(coll, r, frame, to + (size_t)r * bytes, bytes);
    }
    if (bytes)
        memmove(to + (size_t)coll->rank * bytes, mine, bytes);
    return rb_progress_run(coll, why);
}

int rb_coll_agree(struct rb_coll *coll, uint64_t tag, bool yes, bool *ret_all, struct rb_why *why)
{
    RB_CLEANUP(rb_freep) uint8_t *all = rb_alloc((size_t)coll->size);
    uint8_t mine = yes;
    int err = rb_coll_gather(coll, tag, &mine, all, sizeof mine, why);

    *ret_all = !err;
    for (int r = 0; r < coll->size; r++)
        *ret_all &= all[r] == 1;
    return err;
}
