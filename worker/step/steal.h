/* SPDX-License-Identifier: Apache-2.0 */
/* Microbatches that change hands while a step runs: whoever is done early takes the last ones of
 * who is not.
 *
 * what a rank hears, how quick all are > [steal] > what to compute next, what to say
 *
 * Pure.  Each rank goes through its own microbatches from the front.  A rank that is nearly done
 * asks another one, which answers between two of its own: with some of its last ones if they would
 * be done earlier so, else with "none".  Links keep order, and so nobody waits for ever:
 *
 *     ASK      to one, and not again before the answer: GIVE, NONE or EMPTY
 *     EMPTY    to all, once: there is nothing here to ask for; no ASK is answered any more
 *     OVER     to all, once: nothing more comes from here.  Who has heard it of all goes on to the
 *              reduction, whose frames lie behind it
 *
 * What was taken is not given on.  None of it can change a bit: sums are of integers, and the vote
 * counts each microbatch once. */
#ifndef RB_WORKER_STEP_STEAL_H
#define RB_WORKER_STEP_STEAL_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

enum rb_steal_kind { RB_STEAL_ASK, RB_STEAL_GIVE, RB_STEAL_NONE, RB_STEAL_EMPTY, RB_STEAL_OVER };

struct rb_steal_message {
    uint32_t kind;
    uint32_t value; /* ASK: when the asker is done with what it has, us behind the vote before;
                     * GIVE: the first microbatch, */
    uint32_t count; /* GIVE: and so many of the giver's from there on */
    uint32_t zero;
};

/* Microbatches in order, those from `next` on not begun. */
struct rb_steal_list {
    uint32_t *at, next, end;
};

struct rb_steal {
    uint32_t rank, ranks, microbatches;
    bool on;            /* in this attempt; decided by the vote before, alike everywhere */
    unsigned score;     /* of what spoke for it lately, */
    unsigned needed;    /* and so much switches it on */
    uint32_t owning;    /* ranks that have something in the plan */
    uint64_t judged_ns; /* when that vote was in, by this rank's clock: the same moment for all */
    bool spare;         /* somebody has more than one microbatch */
    int32_t *owners;    /* by microbatch, the rank that has it in the plan */
    uint32_t *shares;   /* by rank, how many it has in the plan */
    uint32_t *paces;    /* by rank, us a microbatch takes it, at least 1 where it is on */
    struct rb_steal_list mine, taken;
    uint64_t spent;    /* us in this attempt, */
    uint32_t computed; /* on so many */
    int asked;         /* whom we wait for; -1: nobody */
    uint32_t *left;    /* by rank, how many it may have still, as far as we know; 0: EMPTY */
    bool *over;        /* by rank: has said OVER */
    bool said_empty, said_over;
};

/* owners: copied.  It is off until it is judged otherwise. */
struct rb_steal *rb_steal_new(uint32_t rank, uint32_t ranks, const int32_t *owners,
                              uint32_t microbatches);
void rb_steal_free(struct rb_steal *steal);

/* Behind a vote: shall the next attempt have it?  Where ranks that own something are not done
 * at once, and as long as microbatches change hands.  Each time that it ends and none did it takes
 * twice as many votes to begin again: what is uneven may not be divisible.  paces are what the
 * records say, 0: not measured; most_ns, mean_ns: what ranks computed; moved: how many microbatches
 * have changed hands. */
void rb_steal_judge(struct rb_steal *steal, double mean_ns, double most_ns, uint32_t moved);

/* An attempt begins. */
void rb_steal_begin(struct rb_steal *steal);

/* The next to compute; false: none at present. */
bool rb_steal_next(struct rb_steal *steal, uint32_t *ret_microbatch);
/* It took so long: who is slower than usual gives more. */
void rb_steal_took(struct rb_steal *steal, uint64_t us);

/* What `from` said.  now: us since the vote before was in, which is about the same moment
 * everywhere; an attempt begins later where a rank saves or evaluates first.
 * *ret_answers: `ret_answer` goes back to it.  RB_EINTERNAL: it cannot say so. */
int rb_steal_hear(struct rb_steal *steal, uint32_t from, struct rb_steal_message said, uint64_t now,
                  bool *ret_answers, struct rb_steal_message *ret_answer, struct rb_why *why);

/* Whom to ask now; -1: nobody.  computing: what rb_steal_next has said is about to begin. */
int rb_steal_ask(struct rb_steal *steal, bool computing, uint64_t now,
                 struct rb_steal_message *ret_ask);

/* What to say to all now; false: nothing.  Asked again until there is nothing. */
bool rb_steal_tell(struct rb_steal *steal, bool computing, struct rb_steal_message *ret_message);

/* Have all said OVER, we too? */
bool rb_steal_ended(const struct rb_steal *steal);

#endif
