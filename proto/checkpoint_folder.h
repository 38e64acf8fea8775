/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a folder of checkpoints: FOLDER/step-00001200/ with these files, one such folder
 * for each checkpoint, and FOLDER/latest, a line that names the checkpoint written last.
 *
 * worker/checkpoint writes it > [checkpoint_folder] > workers and rubatod read it */
#ifndef RB_PROTO_CHECKPOINT_FOLDER_H
#define RB_PROTO_CHECKPOINT_FOLDER_H

#include <stdint.h>

#define RB_CHECKPOINT_MODEL     "model.safetensors"
#define RB_CHECKPOINT_OPTIMIZER "optimizer.safetensors"
#define RB_CHECKPOINT_MANIFEST  "state.json"
#define RB_CHECKPOINT_LATEST    "latest"

/* "step-00001200"; the caller frees it. */
char *rb_checkpoint_name(int64_t step);

/* The step of a name that rb_checkpoint_name made; -1 for any other name. */
int64_t rb_checkpoint_step(const char *name);

/* The step that FOLDER/latest names; -1: there is no such line. */
int64_t rb_checkpoint_latest(const char *folder);

#endif
