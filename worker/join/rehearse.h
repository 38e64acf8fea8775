/* SPDX-License-Identifier: Apache-2.0 */
/* A rehearsal: what a first microbatch costs beside its arithmetic, paid before any rank waits.
 *
 * model (just loaded) > [rehearse] > step
 *
 * Memory that was never written and code that was never run make a first microbatch several times
 * as long as the next, and the members that train wait for it where a newcomer enters their
 * configuration. */
#ifndef RB_WORKER_JOIN_REHEARSE_H
#define RB_WORKER_JOIN_REHEARSE_H

#include "worker/model.h"

/* Compute microbatches for nothing, one of each size.  Touches only what an attempt writes to, and
 * leaves nothing of worth there.  whole: this rank will hold all sums; else sums take room with the
 * blocks that it gets.  *stop (may be NULL) ends it early. */
void rb_rehearse(struct rb_model *model, bool whole, const atomic_bool *stop);

#endif
