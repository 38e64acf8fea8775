/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: moves the frames of one call on all links at once.
 *
 * sum, gather, broadcast, p2p > [progress] > link
 *
 * A call says which frames go to and come from each rank, in order, and runs them.  Links are
 * served in turn, a piece at a time, so that full buffers cannot lock ranks up, and so that adding
 * overlaps with sending.  A frame is a header of 24 bytes (kind, tag, size of the whole call), the
 * payload, and zeros up to a multiple of 8.  A large payload may be offered instead, if the
 * receiver can fetch it (coll/link.h): then the frame has the payload's address in its place, and
 * RB_FRAME_OFFER beside the kind. */
#ifndef RB_COLL_PROGRESS_H
#define RB_COLL_PROGRESS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct rb_coll;

enum { RB_FRAME_HEADER = 24, RB_LANE_FRAMES = 32 };

enum rb_frame_kind {
    RB_FRAME_SUM_WHOLE = 1, /* all of a rank's vector */
    RB_FRAME_SUM_PART,      /* the receiver's segment of a rank's vector */
    RB_FRAME_SUM_TOTAL,     /* the sender's segment, summed */
    RB_FRAME_GATHER,
    RB_FRAME_BROADCAST,
    RB_FRAME_MESSAGE,
    RB_FRAME_OFFER = 1u << 31,
};

/* Which call a frame belongs to. */
struct rb_frame {
    enum rb_frame_kind kind;
    uint64_t tag;
    uint64_t total; /* bytes of the whole call, the same on every rank */
};

/* Where several ranks' integers are added up; they are added in the order of their arrival. */
struct rb_summing {
    const int32_t *in; /* this rank's own, added with the first that come */
    int32_t *out;
    size_t started;    /* elements for which `in` and at least one rank were added */
    uint64_t complete; /* bytes for which every rank was added */
};

struct rb_outgoing {
    uint8_t header[RB_FRAME_HEADER];
    const uint8_t *bytes;
    uint64_t size;
    const uint64_t *ready; /* bytes that may go so far; NULL: all */
    uint64_t sent;         /* header, payload and padding */
    bool may_offer;
    uint64_t offered; /* bytes for the peer to fetch; 0: it is no offer */
    uint64_t address; /* where those lie: the payload of an offer */
};

struct rb_incoming {
    uint8_t header[RB_FRAME_HEADER];
    struct rb_frame frame;
    uint8_t *to;              /* for the next bytes of the payload */
    uint64_t room;            /* bytes at `to`; 0: continue with `more` */
    const struct iovec *more; /* for the bytes after those */
    size_t n_more;
    uint64_t size;
    uint64_t had;           /* payload that is in place */
    uint64_t got;           /* header, payload and padding */
    struct rb_summing *sum; /* add the payload there instead of copying it */
    bool offered;
    uint64_t address; /* in the peer's memory, if offered */
};

/* A message that goes whenever its link takes some of it. */
struct rb_post {
    struct rb_post *next;
    struct rb_outgoing out;
    uint8_t bytes[];
};

/* One peer's frames of one call, behind what was posted before it. */
struct rb_lane {
    struct rb_post *posts, **last_post; /* last_post: where the next one goes; NULL: to posts */
    struct rb_outgoing out[RB_LANE_FRAMES];
    struct rb_incoming in[RB_LANE_FRAMES];
    int n_out, n_in;   /* frames */
    int at_out, at_in; /* frames that are done */
    bool blocked;      /* the link took no more */
};

/* Begin a call: 0, or the error that ended the group. */
int rb_progress_begin(struct rb_coll *coll, struct rb_why *why);

void rb_progress_send(struct rb_coll *coll, int rank, struct rb_frame frame, const void *bytes,
                      uint64_t size, const uint64_t *ready);
/* The same, in calls that every receiver takes part in and needs all of: the receiver may have to
 * fetch the payload, which then goes only when all of it is ready. */
void rb_progress_offer(struct rb_coll *coll, int rank, struct rb_frame frame, const void *bytes,
                       uint64_t size, const uint64_t *ready);

/* Returns how many bytes of the frame are in place, for a call that passes them on. */
const uint64_t *rb_progress_receive(struct rb_coll *coll, int rank, struct rb_frame frame, void *to,
                                    uint64_t size);
/* The whole frame into `pieces`, which must stay until the call is through. */
void rb_progress_scatter(struct rb_coll *coll, int rank, struct rb_frame frame,
                         const struct iovec *pieces, size_t n);
void rb_progress_add(struct rb_coll *coll, int rank, struct rb_frame frame, struct rb_summing *sum,
                     uint64_t size);

/* Send the whole frame behind earlier posts to `rank`, and in front of the frames of any later
 * call.  Copies what the link does not take at once. */
void rb_progress_post(struct rb_coll *coll, int rank, struct rb_frame frame,
                      const struct iovec *pieces, size_t n);
/* Push what was posted, without waiting.  An error ends the group. */
int rb_progress_nudge(struct rb_coll *coll, struct rb_why *why);
/* The same, until nothing posted is left. */
int rb_progress_flush(struct rb_coll *coll, struct rb_why *why);
void rb_progress_drop_posts(struct rb_coll *coll);

/* Runs until all frames are through, and the posts in front of them.  An error ends the group. */
int rb_progress_run(struct rb_coll *coll, struct rb_why *why);

#endif
