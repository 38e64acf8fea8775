/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of the other ranks of this host, read where they were made.
 *
 * REDUCE > [views] > update
 *
 * Where a few cores of one host make up a configuration, sums are not sent and written down and
 * read again: each rank adds up a block of all of them when it updates it.  They are complete when
 * who made them votes, and lie in memory that stays when it dies, so the update cannot fail.  They
 * stay as they are until all have said that they have read them.
 *
 * Whoever breaks off goes on without waiting for that, and may leave a rank behind that still
 * reads.  So a word beside the sums names the attempt that they are of, and is changed before they
 * are: such a rank finds out when it is done, and must not go on with what it has.
 *
 * Views outlive their group: who lost it in the middle of a vote may be told afterwards what came
 * of that, and then applies the same (worker/join/recovery.h). */
#ifndef RB_WORKER_STEP_VIEWS_H
#define RB_WORKER_STEP_VIEWS_H

#include "coll/coll.h"
#include "proto/views.h"
#include "worker/model.h"

/* Have model->views of configuration `number`, asking the others for them where this is the first
 * time: all ranks call it in the same places.  *ret_all: they are there; else somebody cannot show
 * its sums, or not see another's.  An error is one of the links. */
int rb_views_find(struct rb_model *model, struct rb_coll *coll, uint32_t number, bool *ret_all,
                  struct rb_why *why);
void rb_views_free(struct rb_views *views);

/* The local sums are to be of the attempt that `word` names from now on, and written; views of
 * other configurations than `number` are of no more use. */
void rb_views_begin(struct rb_model *model, uint64_t word, uint32_t number);

/* The sums over all ranks of a block, where they lie. */
struct rb_sums rb_views_block(const struct rb_model *model, const Rb__Block *block);

/* All of them, into model->reduced. */
void rb_views_reduce(struct rb_model *model);

/* Behind reading: were they those of model->word?  Else RB_EINTERNAL. */
int rb_views_check(const struct rb_model *model, struct rb_why *why);

#endif
