/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of checkpoints, and the state of a tiny job that goes into them.
 *
 * tiny_model > [checkpoint_place] > rb_checkpoint_write, rb_prune, rb_restore */
#ifndef RB_TESTS_WORKER_CHECKPOINT_PLACE_H
#define RB_TESTS_WORKER_CHECKPOINT_PLACE_H

#include "base/error.h"
#include "tests/worker/tiny.h"
#include "worker/state/state.h"

extern const struct tiny_options checkpoint_job;

struct checkpoint_place {
    char folder[64];
    Rb__Model *model;
    struct rb_state state;
};

/* The state is at level 12, with other numbers everywhere. */
void checkpoint_place_open(struct checkpoint_place *place, const struct tiny_options *options);
void checkpoint_place_close(struct checkpoint_place *place);

/* Set the state as it is at a level. */
void checkpoint_place_fill(struct checkpoint_place *place, int64_t level);

/* Returns the path of the checkpoint, which the caller frees. */
char *checkpoint_place_write(struct checkpoint_place *place);

/* Into a state of its own, which has no level if that fails. */
int checkpoint_place_restore(struct checkpoint_place *place, const char *path, struct rb_why *why);

/* How many names in a folder begin with `prefix`. */
int checkpoint_place_count(const char *folder, const char *prefix);

#endif
