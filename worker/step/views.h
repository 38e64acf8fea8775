/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of the other ranks of this host, read where they were made.
 *
 * REDUCE > [views] > update
 *
 * Where a few cores of one host make up a configuration, sums are not sent, stored and read again:
 * each rank adds up all ranks' sums of a block when it updates that block.  A rank's sums are
 * complete when it votes, and lie in memory that stays when it dies, so the update cannot fail.
 * They stay as they are until all ranks have said that they have read them.
 *
 * A rank that breaks off does not wait for readers, so a slower rank may still be reading its sums.
 * A word beside the sums names the attempt they belong to, and it changes before the sums do: the
 * reader checks it when it is done, and must not go on with what it has if the word has changed.
 *
 * Views outlive their group: a rank that lost its group in the middle of a vote may be told the
 * outcome afterwards, and then applies the same sums (worker/join/recovery.h). */
#ifndef RB_WORKER_STEP_VIEWS_H
#define RB_WORKER_STEP_VIEWS_H

#include "coll/coll.h"
#include "proto/views.h"
#include "worker/model.h"

/* Make sure that model->views are those of configuration `number`.  The first call asks the other
 * ranks for them, so all ranks call it in the same places.  *ret_all: they are there; false: some
 * rank cannot show its sums, or cannot see another's.  An error is one of the links. */
int rb_views_find(struct rb_model *model, struct rb_coll *coll, uint32_t number, bool *ret_all,
                  struct rb_why *why);
void rb_views_free(struct rb_views *views);

/* From now on the local sums are of the attempt that `word` names, and are written; views of other
 * configurations than `number` are dropped. */
void rb_views_begin(struct rb_model *model, uint64_t word, uint32_t number);

/* All ranks' sums of a block, where they lie. */
struct rb_sums rb_views_block(const struct rb_model *model, const Rb__Block *block);

/* Add up the sums of all blocks into model->reduced. */
void rb_views_reduce(struct rb_model *model);

/* After reading: were all sums of the attempt that model->word names?  Else RB_EINTERNAL. */
int rb_views_check(const struct rb_model *model, struct rb_why *why);

#endif
