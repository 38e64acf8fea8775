/* SPDX-License-Identifier: Apache-2.0 */
/* Removes checkpoints that are no longer kept.
 *
 * saver > [prune] > FOLDER/step-*
 *
 * A job must not remove what lies in the folder beside its own checkpoints: the manifest says whose
 * a checkpoint is, and one that cannot be read is nobody's. */
#ifndef RB_WORKER_CHECKPOINT_PRUNE_H
#define RB_WORKER_CHECKPOINT_PRUNE_H

#include "base/error.h"
#include "plan.pb-c.h"

#include <stdint.h>

enum rb_prune_owner {
    RB_PRUNE_OWN,     /* of a job with the model's spec digest: such a job could have written it */
    RB_PRUNE_OTHERS,  /* of a job with another digest */
    RB_PRUNE_UNKNOWN, /* no checkpoint, or damaged */
};
enum rb_prune_owner rb_prune_owner(const char *path, const Rb__Model *model);

/* Remove all but the `keep` newest own checkpoints of at most `step` (keep < 1 keeps all), and what
 * writers of `job` left half written when they died. */
int rb_prune(const char *folder, const Rb__Model *model, const char *job, int64_t step,
             int64_t keep, struct rb_why *why);

#endif
