/* SPDX-License-Identifier: Apache-2.0 */
/* The computing of a step whose microbatches may change hands.
 *
 * step > [stealing] > steal, rb_coll_post */
#ifndef RB_WORKER_STEP_STEALING_H
#define RB_WORKER_STEP_STEALING_H

#include "coll/coll.h"
#include "worker/step/steal.h"

#include <stdatomic.h>

struct rb_stealing {
    struct rb_steal *steal; /* begun */
    struct rb_coll *coll;
    uint64_t tag;
    const atomic_bool *stop;
    int (*compute)(uint32_t microbatch, void *owner, struct rb_why *why);
    void *owner;
};

/* Compute until every microbatch of the step is in some rank's sums, as far as this rank can tell:
 * the vote has the last word.  RB_EPEER, RB_ECANCELED: the microbatches computed so far are
 * whole. */
int rb_stealing_run(const struct rb_stealing *stealing, struct rb_why *why);

#endif
