/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a struct rb_coll, for the room's own files.
 *
 * coll > [group] > gather, sum, moves, broadcast, p2p, show, wait, progress */
#ifndef RB_COLL_GROUP_H
#define RB_COLL_GROUP_H

#include "coll/coll.h"
#include "coll/link.h"
#include "coll/progress.h"

#include <poll.h>

struct rb_coll {
    uint32_t configuration;
    int rank, size;
    char **workers;        /* names by rank */
    struct rb_link **link; /* by rank; NULL for this rank */
    struct rb_lane *lane;  /* by rank: what the call under way moves */
    uint8_t *fetched;      /* room for a piece of a peer's memory; NULL until there is one */
    struct pollfd *polls;  /* room for all ranks, `wake`, and what a caller waits for beside */
    int *polled;           /* whose link each of `polls` is */

    int wake; /* an eventfd, readable for ever once cancelled */
    atomic_bool canceled;
    _Atomic uint64_t bytes_sent;

    bool crowded;                  /* this host has fewer cores than ranks */
    uint64_t spin_ns, spin_max_ns; /* how long to look before sleeping: progress.c adapts it */

    atomic_int broken; /* the first error: what every later call returns */
    struct rb_why why;
};

#endif
