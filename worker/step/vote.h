/* SPDX-License-Identifier: Apache-2.0 */
/* The vote of a step: one record a rank, one decision that all of them take alike.
 *
 * step > record > rb_coll_gather > [vote] > commit, redo or skip; keep the configuration or flip
 *
 * Pure.  Records have a fixed size for a model and are little-endian.  A decision needs every
 * microbatch in exactly one record (of each stage of a pipeline), so a step is committed whole or
 * not at all.  Results are those of the last stage. */
#ifndef RB_WORKER_STEP_VOTE_H
#define RB_WORKER_STEP_VOTE_H

#include "base/error.h"
#include "worker/state/exponent.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rb_vote_shape {
    uint32_t microbatches, variables;
    size_t blocks;         /* whose squares are in the record; 0: each rank can compute them all */
    uint32_t stages;       /* of a pipeline; 0: there is none */
    const uint32_t *stage; /* by rank, where there is one */
};

/* Bytes of a record; a multiple of 8. */
size_t rb_vote_bytes(const struct rb_vote_shape *shape);

/* The configuration that a rank would flip to.  All zero: it stays. */
struct rb_vote_ready {
    uint32_t number;
    bool member;                 /* it goes on there; else it leaves */
    uint64_t digest;             /* of members and plan; 0 for a leaver, which does not know them */
    bool collects;               /* it wants the whole state of the next level: to save it */
    uint32_t takes_first, takes; /* a run of blocks that it would hold beside its own */
    bool gives_up;               /* all blocks that it took */
};

/* ---- Writing a record ------------------------------------------------------------------------*/

/* Start an empty record: it holds no microbatch. */
void rb_vote_start(const struct rb_vote_shape *shape, void *record, uint32_t rank, int64_t level,
                   uint32_t attempt);
/* The same results in another attempt, for a record whose sums were kept. */
void rb_vote_again(void *record, uint32_t rank, int64_t level, uint32_t attempt);
bool rb_vote_holds(const void *record, uint32_t microbatch);
void rb_vote_microbatch(const struct rb_vote_shape *shape, void *record, uint32_t microbatch,
                        double loss, int64_t count, int64_t correct);
void rb_vote_variable(const struct rb_vote_shape *shape, void *record, uint32_t variable,
                      uint32_t largest, bool overflow);
/* How long this rank computed its microbatches, without waits, and how long a microbatch takes it
 * of late; 0: not measured. */
void rb_vote_computed(void *record, uint64_t ns, uint32_t microbatch_us);
uint32_t rb_vote_pace(const struct rb_vote_shape *shape, const void *records, uint32_t rank);
/* How many microbatches are not in the record of their owner.  owners: by microbatch, a rank. */
uint32_t rb_vote_moved(const struct rb_vote_shape *shape, const void *records,
                       const int32_t *owners);
/* For each block that this rank is the primary of, the sum of squares of its reduced sums. */
void rb_vote_squares(const struct rb_vote_shape *shape, void *record, const double *squares);
/* The sum of squares that `rank` gave for a block. */
double rb_vote_square(const struct rb_vote_shape *shape, const void *records, uint32_t rank,
                      size_t block);
/* What `rank` would take or give up; all else of ret_ready is left alone. */
void rb_vote_takes(const struct rb_vote_shape *shape, const void *records, uint32_t rank,
                   struct rb_vote_ready *ret_ready);
/* Does `rank` go on in the configuration that it would flip to? */
bool rb_vote_stays(const struct rb_vote_shape *shape, const void *records, uint32_t rank);
/* agreement: a hash of the counters and exponents, which must be the same everywhere. */
void rb_vote_finish(void *record, uint64_t agreement, const struct rb_vote_ready *ready);

/* ---- Deciding -------------------------------------------------------------------------------*/

enum rb_verdict { RB_VOTE_COMMIT, RB_VOTE_REDO, RB_VOTE_SKIP };

struct rb_vote_decision {
    enum rb_verdict verdict;
    bool not_finite; /* SKIP: a gradient or loss is no number; else no target was valid */
    bool flip;       /* never with REDO */
    uint32_t number; /* of the configuration to flip to */
    int collector;   /* the rank that is given the whole state, -1: none; never with REDO */
    double loss;     /* sum over microbatches in index order */
    int64_t count, correct;
    uint32_t moved; /* microbatches that changed hands; filled in by the caller, which knows the
                     * plan */
    struct rb_vote_times {
        double mean, most; /* of the time that each rank computed, ns; 0: not measured */
        double variation;  /* standard deviation over mean */
    } times;
};

/* records: `ranks` of them, by rank.  exponents, limits: by variable, as the attempt used them.
 * ret_largest: by variable, the largest bits of |g| over all ranks.
 *
 * RB_EINTERNAL where the records contradict each other: a plan or a program is broken. */
int rb_vote_decide(const struct rb_vote_shape *shape, const void *records, uint32_t ranks,
                   int64_t level, uint32_t attempt, const struct rb_exponent *exponents,
                   const int32_t *limits, struct rb_vote_decision *ret_decision,
                   uint32_t *ret_largest, struct rb_why *why);

#endif
