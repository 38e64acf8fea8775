/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline as one of its ranks sees it: what the rank runs of each program, and which stages have
 * the rest.  Or filters in parts, which are stages that a microbatch is in at the same time, each
 * with its own programs.
 *
 * Plan.courses, RankPlan.stage > [stage] > flight, exchange, step, vote
 *
 * Immutable.  What crosses between two stages travels as one message a microbatch: all tensors
 * behind each other.  To a later stage it goes behind FORWARD, to an earlier one behind BACKWARD;
 * each tensor is taken as soon as it is made, and put in place just before it is first read, when
 * its place in the arena is free and no earlier. */
#ifndef RB_WORKER_STAGES_STAGE_H
#define RB_WORKER_STAGES_STAGE_H

#include "base/error.h"
#include "coll/coll.h"
#include "plan.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tensor that comes from or goes to another stage. */
struct rb_cargo {
    uint32_t tensor, at;  /* put in place in front of instruction `at`, or taken behind it */
    uint32_t peer;        /* the other stage */
    size_t offset, bytes; /* in the message */
};

/* What a rank runs of a program that trains. */
struct rb_part {
    const Rb__Program *message; /* NULL: it does not train */
    uint32_t forward;           /* the first so many instructions are the forward part */
    bool *runs;                 /* by instruction */
    bool *adds;                 /* by instruction: contributions of what it makes are this rank's */
    struct rb_cargo *in, *out;  /* by `at` */
    size_t n_in, n_out;
    size_t *in_bytes, *out_bytes; /* by stage: of the message from it, and to it; 0: none */
};

struct rb_stage {
    bool split; /* stages are parts of the filters */
    bool laps;  /* each stage updates its own weights (worker/stages/lap.h) */
    uint32_t stages, mine;
    uint32_t ranks, microbatches; /* of a step, or of a lap */
    uint32_t *of_rank;            /* by rank: its stage */
    uint32_t flights;             /* microbatches that are under way in a rank, at most */
    uint32_t *owners;      /* by stage * microbatches + microbatch: the rank that runs it there */
    struct rb_part *parts; /* of a pipeline, by program of the model */
    size_t n_parts;
    uint32_t program,
        last_program; /* of a part of the filters: of a microbatch, and the last one */
    /* There, by variable: several contributions are pieces of its sums, so none is the first of
     * all. NULL in a pipeline. */
    bool *pieced;
    int *ready, *last_ready; /* there, of these programs: rb_exchange_ready */
    uint64_t *gives, *reads; /* by block: stages that make summands of it, and that read it */
    bool *senders;           /* by block * ranks + rank: the rank is in a stage that gives */
};

/* NULL in *ret_stage: there are no stages.  RB_EINVAL: the plan does not run every microbatch once
 * in every stage, or its ranks would wait for each other.  Borrows from `model`. */
int rb_stage_read(const Rb__Plan *plan, const Rb__Model *model, uint32_t rank,
                  struct rb_stage **ret_stage, struct rb_why *why);
void rb_stage_free(struct rb_stage *stage); /* NULL is fine */

/* The same sums (worker/state/placement.h) in ranges that are cut where other stages make the
 * summands; only ranks of these stages send theirs.  The caller frees *ret_ranges; returns how
 * many. */
size_t rb_stage_ranges(const struct rb_stage *stage, const Rb__Model *model,
                       const struct rb_coll_range *ranges, size_t n,
                       struct rb_coll_range **ret_ranges);

/* The same for moves of weights, cut to what their receiver reads. */
size_t rb_stage_moves(const struct rb_stage *stage, const Rb__Model *model, const float *weights,
                      const struct rb_coll_move *moves, size_t n, struct rb_coll_move **ret_moves);

/* The stage that makes the gradient of a block, the first of several; 0 where none does. */
static inline uint32_t rb_stage_maker(const struct rb_stage *stage, size_t block)
{
    return stage->gives[block] ? (uint32_t)__builtin_ctzll(stage->gives[block]) : 0;
}

/* Can the stages run on by themselves (worker/stages/lap.h)?  RB_EUNSUPPORTED: two stages need the
 * same weights, or a stage has several ranks. */
int rb_stage_separate(const struct rb_stage *stage, const Rb__Model *model, struct rb_why *why);

static inline uint32_t rb_stage_owner(const struct rb_stage *stage, uint32_t one,
                                      uint32_t microbatch)
{
    return stage->owners[(size_t)one * stage->microbatches + microbatch];
}

#endif
