/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that are kept no longer.
 *
 * saver > [prune] > FOLDER/step-*
 *
 * What may lie in the folder beside a job's own is not its to remove: whose a checkpoint is says
 * its manifest, and one that cannot be read is nobody's. */
#ifndef RB_WORKER_CHECKPOINT_PRUNE_H
#define RB_WORKER_CHECKPOINT_PRUNE_H

#include "base/error.h"
#include "plan.pb-c.h"

#include <stdint.h>

enum rb_prune_owner {
    RB_PRUNE_OWN,     /* of jobs with the model's spec digest: each could have written it */
    RB_PRUNE_OTHERS,  /* of a job with another one */
    RB_PRUNE_UNKNOWN, /* no checkpoint, or damaged */
};
enum rb_prune_owner rb_prune_owner(const char *path, const Rb__Model *model);

/* Remove all but the `keep` newest own checkpoints of at most `step` (keep < 1 keeps all), and what
 * writers of `job` left half done when they died. */
int rb_prune(const char *folder, const Rb__Model *model, const char *job, int64_t step,
             int64_t keep, struct rb_why *why);

#endif
