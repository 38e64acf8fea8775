/* SPDX-License-Identifier: Apache-2.0 */
/* Following from inside: for follow.c (its course) and follow_take.c (what comes, and what is
 * answered) alone. */
#ifndef RB_WORKER_JOIN_FOLLOW_INSIDE_H
#define RB_WORKER_JOIN_FOLLOW_INSIDE_H

#include "worker/join/follow.h"
#include "worker/parcels.h"

enum { RB_FOLLOW_ALIVE_MS = 1000 }; /* between signs of life */

/* What comes from one source; its state is the stream of the same index. */
struct source {
    uint32_t rank;
    size_t next;  /* its blocks in front of this one have come */
    size_t fixed; /* bytes that have come, of those that this source gives */
    uint64_t headers, answers;
    bool flipped;
    uint8_t *counters;         /* at the stream's level */
    struct rb_parcels parcels; /* where it has any for us */
};

struct follow {
    struct rb_model *model;
    struct rb_coll *coll;
    const struct rb_roster *roster;
    const struct rb_placement *placement;
    uint32_t rank;
    uint32_t index; /* among the newcomers */
    struct source *sources;
    struct rb_stream *streams;
    bool *from; /* by rank: sources that have something to say still */
    uint8_t *bytes;
    size_t room;
    uint64_t received, parcelled; /* bytes: all, and those that came as parcels */
    int64_t answered;             /* level */
    uint64_t answered_at;
};

/* The next block from `from` on that a source gives this newcomer to hold; roster->blocks: none. */
size_t rb_follow_next(const struct follow *follow, uint32_t source, size_t from);

/* Take in the message that `rank` has begun to send. */
int rb_follow_take(struct follow *follow, uint32_t rank, struct rb_why *why);

/* Acknowledge a level as soon as it is complete; else send a sign of life now and then. */
int rb_follow_answer_if_due(struct follow *follow, struct rb_why *why);

#endif
