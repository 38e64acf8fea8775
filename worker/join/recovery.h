/* SPDX-License-Identifier: Apache-2.0 */
/* What the members of a configuration have between them, and what each of them does to come level.
 *
 * testimonies of all > [recovery] > opening
 *
 * Pure, and all ranks come to the same by themselves.  A death may tear the state of a run: in the
 * middle of a vote some ranks know the decision and commit, others hold the reduced sums of that
 * step but do not know the decision.  A rank votes only when it holds its sums, so if one rank is
 * at a level, each rank one step behind it either has what it takes to follow or is of no use:
 *
 *     the highest level wins
 *       at it                                          LEVEL: its blocks count
 *       one behind, with the sums of the attempt that was committed, and some rank has the entry
 *                                                      APPLIES: told of the entry, then the same
 *       else                                           VOID: it receives whatever it shall hold
 *
 * A rank that has voted on a lap (worker/stages/lap.h) has all of it, and needs no entry, for there
 * was nothing to decide.  It counts as a rank at the level that the lap leads to, and APPLIES; if
 * that level has lost a block that the lap's beginning has not, all ranks go back to the beginning.
 * But others may have opened a configuration without this rank, and gone on from the lap's
 * beginning in another way: a lap counts only if no rank with state has opened a later
 * configuration than the one in which the lap ran.  (A flip goes on from the commit of the lap, so
 * it takes nothing from it.)
 *
 * A rank that was given a level, as a newcomer, does not know what led to it.  If only such ranks
 * are at the highest level, and others hold the sums of the step to it, it is as if all that
 * committed the step had died: the ranks one behind take the step again, if they have all of the
 * state between them.
 *
 * Each block comes from the lowest rank that has it then.  A block that no rank has is lost, and
 * with it the state; but where the ranks one behind have all of the state, they take the step
 * again, which comes to the same. */
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
    int64_t level; /* that all ranks come to; -1: none has any state */
    int source;    /* the lowest rank at the level */
    int teller;    /* the lowest rank at it that has the entry, or nobody */
    size_t blocks;
    uint32_t ranks;
    enum rb_fate *fates; /* by rank */
    int *givers;         /* by block: the rank that gives it, or nobody */
    int64_t lost;        /* the first block that no rank has; -1: none */
};

/* held: by rank * blocks + block. */
void rb_recovery_judge(const struct rb_testimony *testimonies, const uint8_t *held, uint32_t ranks,
                       size_t blocks, struct rb_recovery *ret_recovery);
void rb_recovery_done(struct rb_recovery *recovery);

/* Does `rank` have the block once all ranks that apply have applied?  A block that lingered at the
 * level before is then of no more use. */
bool rb_recovery_has(const struct rb_recovery *recovery, const uint8_t *held, uint32_t rank,
                     size_t block);

/* How a member holds a block once an opening has copied.  before: enum rb_held before the opening,
 * where the member's state was of any use.  undecided: the member has the sums of a step, and has
 * not heard what came of it.  It has no sums of the blocks that the opening brought, so those
 * linger: before this opening is through another one may come, in which the member is told. */
uint8_t rb_recovery_held(uint8_t before, bool shall_hold, bool undecided);

/* Shall a member hold some block that it has no such sums of? */
bool rb_recovery_gains(const uint8_t *held, const uint8_t *shall_hold, size_t blocks);

#endif
