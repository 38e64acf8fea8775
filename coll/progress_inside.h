/* SPDX-License-Identifier: Apache-2.0 */
/* The engine from inside: for progress*.c alone.
 *
 * progress: turns over all links > [progress_send, progress_receive]: some of one link's frames
 *
 * A turn moves what a link takes or has by now, a piece at most, and waits for nothing. */
#ifndef RB_COLL_PROGRESS_INSIDE_H
#define RB_COLL_PROGRESS_INSIDE_H

#include "coll/group.h"

enum {
    RB_FRAME_MAGIC = 0x31464252,    /* "RBF1" */
    RB_PROGRESS_PIECE = 256 * 1024, /* most that one link moves before the next has its turn */
    RB_PROGRESS_OFFER = 256 * 1024, /* the smallest offer, and how much is fetched at once */
};

static inline uint64_t rb_frame_padded(uint64_t size)
{
    return (size + 7) & ~UINT64_C(7);
}

/* The frame to send next; NULL: none. */
static inline struct rb_outgoing *rb_lane_next(struct rb_lane *lane)
{
    if (lane->posts)
        return &lane->posts->out;
    return lane->at_out < lane->n_out ? &lane->out[lane->at_out] : NULL;
}

/* Sends some of the next frame: bytes moved, 0 where there is no next frame, or an error. */
int64_t rb_progress_push(struct rb_coll *coll, int rank);
/* The same for the next frame to receive; `why` is not set for RB_EPEER. */
int64_t rb_progress_pull(struct rb_coll *coll, int rank, struct rb_why *why);

#endif
