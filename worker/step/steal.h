/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that change hands while a step runs: a rank that is done early takes the last ones
 * of a rank that is not.
 *
 * what a rank hears, how quick all are > [steal] > what to compute next, what to say
 *
 * Pure.  Each rank goes through its own microbatches from the front.  A rank that is nearly done
 * asks another rank, which answers between two of its own microbatches: with some of its last ones
 * if they would be done earlier that way, else with "none".  Links keep order, so no rank waits for
 * ever:
 *
 *     ASK      to one, and not again before the answer: GIVE, NONE or EMPTY
 *     EMPTY    to all, once: this rank has nothing to give; it answers no ASK any more
 *     OVER     to all, once: nothing more comes from this rank.  A rank that has heard OVER of all
 *              goes on to the reduction, whose frames lie behind it
 *
 * A microbatch that was taken is not given on.  None of this can change a bit: sums are of
 * integers, and the vote counts each microbatch once. */
#ifndef RB_WORKER_STEP_STEAL_H
#define RB_WORKER_STEP_STEAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum rb_steal_kind { RB_STEAL_ASK, RB_STEAL_GIVE, RB_STEAL_NONE, RB_STEAL_EMPTY, RB_STEAL_OVER };

struct rb_steal_message {
    uint32_t kind;
    uint32_t value; /* ASK: when the asker is done with what it has, us after the previous vote;
                     * GIVE: the first microbatch, */
    uint32_t count; /* GIVE: how many of the giver's, from that one on */
    uint32_t zero;
};

/* Microbatches in order, those from `next` on not begun. */
struct rb_steal_list {
    uint32_t *at, next, end;
};

struct rb_steal {
    uint32_t rank, ranks, microbatches;
    bool on;            /* in this attempt; decided by the vote before, alike everywhere */
    unsigned score;     /* recent votes that spoke for it, less those against, */
    unsigned needed;    /* and the score that switches it on */
    uint32_t owning;    /* ranks that have something in the plan */
    uint64_t judged_ns; /* when that vote was in, by this rank's clock: the same moment for all */
    bool spare;         /* a rank has more than one microbatch */
    int32_t *owners;    /* by microbatch, the rank that has it in the plan */
    uint32_t *shares;   /* by rank, how many it has in the plan */
    uint32_t *paces;    /* by rank, us a microbatch takes it, at least 1 where it is on */
    struct rb_steal_list mine, taken;
    uint64_t spent;    /* us in this attempt, */
    uint32_t computed; /* on so many */
    int asked;         /* the rank whose answer we wait for; -1: none */
    uint32_t *left;    /* by rank, how many it may have still, as far as we know */
    bool *over;        /* by rank: has said OVER */
    bool said_empty, said_over;
};

/* owners: copied.  Stealing is off until rb_steal_judge switches it on. */
struct rb_steal *rb_steal_new(uint32_t rank, uint32_t ranks, const int32_t *owners,
                              uint32_t microbatches);
void rb_steal_free(struct rb_steal *steal);

/* After a vote: do microbatches change hands in the next attempt?  Yes where ranks that own some
 * are not done at the same time, and then as long as microbatches change hands.  Each time that
 * stealing ends without a single one having changed hands, it takes twice as many votes to begin
 * again: uneven work may not be divisible.  paces are what the records say, 0: not measured;
 * mean_ns, most_ns: how long ranks computed; moved: how many microbatches have changed hands. */
void rb_steal_judge(struct rb_steal *steal, double mean_ns, double most_ns, uint32_t moved);

/* An attempt begins. */
void rb_steal_begin(struct rb_steal *steal);

/* The next microbatch to compute; false: none at present. */
bool rb_steal_next(struct rb_steal *steal, uint32_t *ret_microbatch);
/* The microbatch took `us`: a rank that is slower than usual gives more. */
void rb_steal_took(struct rb_steal *steal, uint64_t us);

/* Take in what `from` said.  now: us since the previous vote was in, which is about the same moment
 * on all ranks; the beginning of an attempt is not, because a rank may save or evaluate first.
 * *ret_answers: `ret_answer` goes back to `from`.  RB_EINTERNAL: `from` cannot have said that. */
int rb_steal_hear(struct rb_steal *steal, uint32_t from, struct rb_steal_message said, uint64_t now,
                  bool *ret_answers, struct rb_steal_message *ret_answer, struct rb_why *why);

/* The rank to ask now; -1: none.  computing: the microbatch of rb_steal_next is about to begin. */
int rb_steal_ask(struct rb_steal *steal, bool computing, uint64_t now,
                 struct rb_steal_message *ret_ask);

/* The next message to all ranks; false: none.  The caller asks again until there is none. */
bool rb_steal_tell(struct rb_steal *steal, bool computing, struct rb_steal_message *ret_message);

/* Have all ranks said OVER, this one included? */
bool rb_steal_ended(const struct rb_steal *steal);

#endif
