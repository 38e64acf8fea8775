/* SPDX-License-Identifier: Apache-2.0 */
/* How a folder of checkpoints is laid out: FOLDER/step-00001200/ with these files, one for each
 * checkpoint, and FOLDER/latest, a line that names the one that was written last.
 *
 * worker/checkpoint writes it > [checkpoint_folder] > workers and rubatod read it */
#ifndef RB_PROTO_CHECKPOINT_FOLDER_H
#define RB_PROTO_CHECKPOINT_FOLDER_H

#include <stdint.h>

#define RB_CHECKPOINT_MODEL     "model.safetensors"
#define RB_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define RB_CHECKPOINT_MANIFEST  "state.json"
#define RB_CHECKPOINT_LATEST    "latest"

/* "step-00001200"; free. */
char *rb_checkpoint_name(int64_t step);

/* The step of a name that rb_checkpoint_name has given, -1 of any other. */
int64_t rb_checkpoint_step(const char *name);

/* The step that FOLDER/latest names; -1: there is no such line. */
int64_t rb_checkpoint_latest(const char *folder);

#endif
