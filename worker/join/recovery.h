/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a configuration have between them, and what each of them does to come level.
 *
 * testimonies of all > [recovery] > opening
 *
 * Pure, and all come to the same by themselves.  The state of a run may be torn by a death: in the
 * middle of a vote some ranks know the decision and commit, others hold the reduced sums of that
 * step but do not know it.  A rank votes only when it holds its sums, so if one is at a level, each
 * of those one step behind it either has what it takes to follow or is of no use:
 *
 *     the highest level wins
 *       at it                                          LEVEL: its blocks count
 *       one behind, with the sums of the attempt that was committed, and somebody has the entry
 *                                                      APPLIES: told of the entry, then the same
 *       else                                           VOID: it receives whatever it shall hold
 *
 * A lap (worker/stages/lap.h) is whole where a rank has voted on it: it needs no entry, for there
 * was nothing to decide.  Such a rank counts as one at the level that the lap leads to, and
 * APPLIES; if that level has lost a block that the lap's beginning has not, all go back to there.
 * But others may have opened a configuration without such a rank, and gone on from the lap's
 * beginning in another way: a lap counts only if nobody with state has opened a later configuration
 * than the one in which it ran.  (A flip goes on from the commit of the lap, so it takes nothing
 * from it.)
 *
 * Whoever was given a level, as a newcomer, does not know what led to it.  If only such are at the
 * highest, and some hold the sums of that step, then it is as where all have died who committed it:
 * it is taken again, by those who are one behind, if they have all of the state between them.
 *
 * Each block comes from the lowest rank that has it then.  A block that nobody has is lost, and
 * with it the state; but where those who are one behind have all of it, they take the step again,
 * which comes to the same. */
#ifndef RB_WORKER_JOIN_RECOVERY_H
#define RB_WORKER_JOIN_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank says of itself; travels as it lies, followed by a byte a block: enum rb_held. */
struct rb_testimony {
    int64_t level;    /* -1: no state */
    uint32_t reduced; /* 1 + the attempt at the next step whose sums it holds; 0: none */
    uint32_t entry;   /* 1 + the attempt that led to its level; 0: it cannot say */
    uint32_t torn;    /* its weights of blocks that it does not hold may be older */
    uint32_t lap;     /* steps of a lap that it has whole beyond its level; 0: none */
    uint32_t ran;     /* the configuration in which that lap ran */
    uint32_t opened;  /* the last configuration that it came level in by an opening; 0: none */
};

enum rb_fate { RB_FATE_VOID, RB_FATE_LEVEL, RB_FATE_APPLIES };

enum { RB_RECOVERY_NOBODY = -1 };

struct rb_recovery {
    int64_t level; /* that all come to; -1: nobody has any state */
    int source;    /* the lowest rank at the level */
    int teller;    /* the lowest rank at it that has the entry, or nobody */
    size_t blocks;
    uint32_t ranks;
    enum rb_fate *fates; /* by rank */
    int *givers;         /* by block: a rank that has it, or nobody */
    int64_t lost;        /* the first block that nobody has; -1: none */
};

/* held: by rank * blocks + block. */
void rb_recovery_judge(const struct rb_testimony *testimonies, const uint8_t *held, uint32_t ranks,
                       size_t blocks, struct rb_recovery *ret_recovery);
void rb_recovery_done(struct rb_recovery *recovery);

/* Does `rank` have the block once all that apply have applied?  What lingered at the level before
 * is then of no more use. */
bool rb_recovery_has(const struct rb_recovery *recovery, const uint8_t *held, uint32_t rank,
                     size_t block);

/* How a member holds a block behind what an opening has copied.  before: enum rb_held in front of
 * it, where its state was of any use.  undecided: it has the sums of a step, and has not heard what
 * came of that.  Of what the opening brought it has none, so that lingers: another opening may come
 * before this one is through, in which it is told. */
uint8_t rb_recovery_held(uint8_t before, bool shall_hold, bool undecided);

/* Will one that holds what it shall hold some block that it has no such sums of? */
bool rb_recovery_gains(const uint8_t *held, const uint8_t *shall_hold, size_t blocks);

#endif
