/* SPDX-License-Identifier: Apache-2.0 */
/* A crew: forked processes, one a rank, that meet and call each other under a watchdog. */
#ifndef RB_TESTS_COLL_CREW_H
#define RB_TESTS_COLL_CREW_H

#include "base/sanitized.h"
#include "coll/coll.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A rank that meets may have loaded a model first. */
enum { CREW_MAX = 6, CREW_TEXT = 200, CREW_MEET_MS = RB_SANITIZED ? 200000 : 60000 };

enum crew_link { CREW_SHARED, CREW_UNIX, CREW_TCP, CREW_LINKS };

/* Memory that all processes of a crew see. */
struct crew_board {
    pthread_barrier_t start;
    char address[CREW_MAX][CREW_TEXT];
    _Atomic uint64_t word[8]; /* for the tests */
};

struct crew {
    int size, rank;
    enum crew_link link;
    struct crew_board *board;
    struct rb_listener *listener; /* in a rank's own process */
    char folder[64];
    const void *data; /* for the tests */
};

/* Ends a rank's process unless `truth` holds. */
#define CREW_CHECK(crew, truth)                                                                    \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            fprintf(stderr, "%s:%d: rank %d of %d: not true: %s\n", __FILE__, __LINE__,            \
                    (crew)->rank, (crew)->size, #truth);                                           \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define CREW_OK(crew, call, why)                                                                   \
    do {                                                                                           \
        int crew_err_ = (call);                                                                    \
        if (crew_err_) {                                                                           \
            fprintf(stderr, "%s:%d: rank %d of %d: %s: %d %s\n", __FILE__, __LINE__, (crew)->rank, \
                    (crew)->size, #call, crew_err_, (why)->text);                                  \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (0)

typedef void crew_body(struct crew *crew);

/* Run `body` in `size` processes, each with its listener; they start together once all addresses
 * are on the board.  The ranks in the bit set `dead` must end by SIGKILL, all others well. */
void crew_run(int size, enum crew_link link, unsigned dead, crew_body *body, const void *data);

/* Open the group of all ranks at `configuration`. */
int crew_open(struct crew *crew, uint32_t configuration, int timeout_ms, struct rb_coll **ret,
              struct rb_why *why);

#endif
