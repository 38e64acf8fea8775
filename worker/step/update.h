/* SPDX-License-Identifier: Apache-2.0 */
/* Applying a committed step: the optimizer, over the blocks in index order.
 *
 * reduced sums, vote > [update] > state at the next level
 *                    follow >
 *
 * As PyTorch defines them: clip_grad_norm_ over all trained variables, then AdamW or SGD.  The
 * optimizer's t counts steps that were applied; a skipped step moves the level alone.
 *
 * A newcomer that follows the log applies the same terms to the blocks that it has, one by one. */
#ifndef RB_WORKER_STEP_UPDATE_H
#define RB_WORKER_STEP_UPDATE_H

#include "worker/model.h"
#include "worker/step/vote.h"

struct rb_update {
    double grad_norm; /* of the mean gradient, before clipping; NaN where that is not finite */
    double lr;
};

/* Squares of the reduced sums of the blocks that `rank` is the primary of (primary NULL: of all),
 * in model->squares; 0 of the others. */
void rb_update_squares(struct rb_model *model, const uint32_t *primary, uint32_t rank);

/* Apply a commit: the blocks that are held, exponents, counters, level + 1.  squared:
 * model->squares has the squares of all blocks, from the vote; else all blocks are held, and this
 * computes them.  Where sums are apart, they are read in place, unless something beside the update
 * needs them: clipping, or newcomers, which must be sent them.  With newcomers model->reduced is
 * another buffer afterwards. */
struct rb_update rb_update_commit(struct rb_model *model, const struct rb_vote_decision *decision,
                                  bool squared);

/* Apply a skip: the step is used up, its samples are not used again. */
struct rb_update rb_update_skip(struct rb_model *model, const struct rb_vote_decision *decision);

/* All that applying a block needs beside its sums and the exponents of the attempt. */
struct rb_update_terms {
    double lr;
    int64_t applied; /* steps applied before this one */
    float scale;     /* of the sums: 1 / count and clipping */
};

/* Apply a step that other ranks have applied, to the blocks that are held, from the sums of
 * model->pending.  entry: of a commit or of a skip (worker/join/wire.h).  RB_EINTERNAL: those sums
 * are not there any more; nothing has been changed. */
int rb_update_apply(struct rb_model *model, const void *entry, bool commit, struct rb_why *why);

/* Update one block of `state` by the sums of its elements, at model->exponents. */
void rb_update_block(struct rb_model *model, struct rb_state *state, const int32_t *sums,
                     const struct rb_update_terms *terms, const Rb__Block *block);

/* The factor, at most 1, that clipping applies to a gradient of this norm. */
double rb_update_clip(const Rb__Optimizer *optimizer, double norm);

#endif
