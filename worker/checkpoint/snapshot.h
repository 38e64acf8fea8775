/* SPDX-License-Identifier: Apache-2.0 */
/* A snapshot: a copy of the state at one level, taken while training goes on to the next.
 *
 * saver (its thread: copy) > [snapshot] < update (step thread: keep)
 *
 * Blocks do not change while a step computes; meanwhile the saver's thread copies them, on whatever
 * core is free.  The update copies the remaining blocks, each just before it is overwritten, when
 * the update needs it in the cache anyway.  So a block is copied once, and no thread waits for
 * longer than one block takes. */
#ifndef RB_WORKER_CHECKPOINT_SNAPSHOT_H
#define RB_WORKER_CHECKPOINT_SNAPSHOT_H

#include "worker/state/state.h"

struct rb_snapshot;

/* A snapshot of `state`, which must outlive it.  No memory for the copy yet. */
struct rb_snapshot *rb_snapshot_new(const struct rb_state *state, const Rb__Model *model);
void rb_snapshot_free(struct rb_snapshot *snapshot); /* NULL is fine */

/* Get memory for a copy, and write all of it once, so that the first copy does not wait for its
 * pages.  A second call is fine.  RB_ENOMEM. */
int rb_snapshot_reserve(struct rb_snapshot *snapshot, struct rb_why *why);

/* The copy, to read once it is complete, or to fill in another way; NULL: not reserved. */
struct rb_state *rb_snapshot_copy(struct rb_snapshot *snapshot);

/* From now on the copy becomes the state at its present level.  The state must be whole, or must
 * not change before the copy is complete. */
void rb_snapshot_begin(struct rb_snapshot *snapshot);

/* The saver's thread: copy all blocks that are not copied yet.  The copy is complete when this
 * returns. */
void rb_snapshot_complete(struct rb_snapshot *snapshot);

/* The step thread: block `block` is about to change. */
void rb_snapshot_keep(struct rb_snapshot *snapshot, size_t block);

#endif
