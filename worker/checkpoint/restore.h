/* SPDX-License-Identifier: Apache-2.0 */
/* Loading the state that a job starts from; every byte is checked before any of it counts.
 *
 * checkpoint folder, or a safetensors file of initial weights > [restore] > state */
#ifndef RB_WORKER_CHECKPOINT_RESTORE_H
#define RB_WORKER_CHECKPOINT_RESTORE_H

#include "worker/state/state.h"

/* path: a folder that rb_checkpoint_write made, or one safetensors file with exactly the model's
 * variables (level 0).  If such a folder was removed for newer ones, the newest of them is loaded,
 * and its level says so.  On failure state->level is -1. */
int rb_restore(const char *path, const Rb__Model *model, struct rb_state *state,
               struct rb_why *why);

#endif
