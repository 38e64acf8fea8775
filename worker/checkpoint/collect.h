/* SPDX-License-Identifier: Apache-2.0 */
/* The whole state at one rank, where no rank holds it: for a checkpoint.
 *
 * state in shards > [collect] > saver's copy > checkpoint */
#ifndef RB_WORKER_CHECKPOINT_COLLECT_H
#define RB_WORKER_CHECKPOINT_COLLECT_H

#include "worker/configuration.h"
#include "worker/model.h"

/* Every rank of a sharded configuration calls this at the same level.  into: at rank `to`, receives
 * all of the state, counters included; NULL at the others. */
int rb_collect_run(const struct rb_model *model, const struct rb_configuration *configuration,
                   uint32_t to, struct rb_state *into, struct rb_why *why);

#endif
