/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/group.h"

static int begin(struct rb_coll *coll, int rank, struct rb_why *why)
{
    int err = rb_progress_begin(coll, why);

    if (!err && (rank < 0 || rank >= coll->size || rank == coll->rank))
        err = rb_why_set(why, RB_EINVAL, "a message between rank %d and rank %d of %d", coll->rank,
                         rank, coll->size);
    return err;
}

int rb_coll_send(struct rb_coll *coll, uint64_t tag, int to, const void *bytes, size_t size,
                 struct rb_why *why)
{
    int err = begin(coll, to, why);

    if (err)
        return err;
    rb_progress_send(coll, to, (struct rb_frame){RB_FRAME_MESSAGE, tag, size}, bytes, size, NULL);
    return rb_progress_run(coll, why);
}

int rb_coll_receive(struct rb_coll *coll, uint64_t tag, int from, void *bytes, size_t size,
                    struct rb_why *why)
{
    return rb_coll_receive_pieces(coll, tag, from, &(struct iovec){bytes, size}, 1, why);
}

int rb_coll_post(struct rb_coll *coll, uint64_t tag, int to, const void *bytes, size_t size,
                 struct rb_why *why)
{
    return rb_coll_post_pieces(coll, tag, to, &(struct iovec){(void *)(uintptr_t)bytes, size}, 1,
                               why);
}

static struct rb_frame message_of(uint64_t tag, const struct iovec *pieces, size_t n)
{
    struct rb_frame frame = {RB_FRAME_MESSAGE, tag, 0};

    for (size_t i = 0; i < n; i++)
        frame.total += pieces[i].iov_len;
    return frame;
}

int rb_coll_receive_pieces(struct rb_coll *coll, uint64_t tag, int from, const struct iovec *pieces,
                           size_t n, struct rb_why *why)
{
    int err = begin(coll, from, why);

    if (err)
        return err;
    rb_progress_scatter(coll, from, message_of(tag, pieces, n), pieces, n);
    return rb_progress_run(coll, why);
}

int rb_coll_post_pieces(struct rb_coll *coll, uint64_t tag, int to, const struct iovec *pieces,
                        size_t n, struct rb_why *why)
{
    int err = begin(coll, to, why);

    if (err)
        return err;
    rb_progress_post(coll, to, message_of(tag, pieces, n), pieces, n);
    return rb_progress_nudge(coll, why);
}

int rb_coll_nudge(struct rb_coll *coll, struct rb_why *why)
{
    int err = rb_progress_begin(coll, why);

    return err ? err : rb_progress_nudge(coll, why);
}

int rb_coll_flush(struct rb_coll *coll, struct rb_why *why)
{
    int err = rb_progress_begin(coll, why);

    return err ? err : rb_progress_flush(coll, why);
}
