/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcasts.  Little, or to one: the root sends it to every rank.  Much: the root sends each rank
 * one segment, and each rank passes its segment on to the others as it comes, so that the root's
 * links carry the bytes once instead of once a rank. */
#include "coll/group.h"

enum { SMALL = 64 * 1024 };

static void direct(struct rb_coll *coll, struct rb_frame frame, int root, uint8_t *bytes)
{
    if (coll->rank != root) {
        rb_progress_receive(coll, root, frame, bytes, frame.total);
        return;
    }
    for (int r = 0; r < coll->size; r++)
        if (r != root)
            rb_progress_send(coll, r, frame, bytes, frame.total, NULL);
}

/* Where the segment of rank r begins; the root has none. */
static uint64_t cut(const struct rb_coll *coll, uint64_t size, int root, int r)
{
    uint64_t each = (size / (uint64_t)(coll->size - 1) + 64) & ~UINT64_C(63);
    uint64_t at = each * (uint64_t)(r - (r > root));

    return r == coll->size || at > size ? size : at;
}

static void spread(struct rb_coll *coll, struct rb_frame frame, int root, uint8_t *bytes)
{
    const uint64_t mine = cut(coll, frame.total, root, coll->rank);
    const uint64_t *had = NULL;

    if (coll->rank != root)
        had = rb_progress_receive(coll, root, frame, bytes + mine,
                                  cut(coll, frame.total, root, coll->rank + 1) - mine);
    for (int r = 0; r < coll->size; r++) {
        uint64_t theirs = cut(coll, frame.total, root, r);
        uint64_t size = cut(coll, frame.total, root, r + 1) - theirs;

        if (r == coll->rank || r == root)
            continue;
        if (coll->rank == root) {
            rb_progress_send(coll, r, frame, bytes + theirs, size, NULL);
            continue;
        }
        rb_progress_send(coll, r, frame, bytes + mine,
                         cut(coll, frame.total, root, coll->rank + 1) - mine, had);
        rb_progress_receive(coll, r, frame, bytes + theirs, size);
    }
}

int rb_coll_broadcast(struct rb_coll *coll, uint64_t tag, int root, void *bytes, size_t size,
                      struct rb_why *why)
{
    struct rb_frame frame = {RB_FRAME_BROADCAST, tag, size};
    int err = rb_progress_begin(coll, why);

    if (err)
        return err;
    if (root < 0 || root >= coll->size)
        return rb_why_set(why, RB_EINVAL, "a broadcast from rank %d in a group of %d", root,
                          coll->size);
    if (coll->size <= 2 || size <= SMALL)
        direct(coll, frame, root, bytes);
    else
        spread(coll, frame, root, bytes);
    return rb_progress_run(coll, why);
}
