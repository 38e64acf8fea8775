/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints and exports as files, byte for byte the same for the same state.
 *
 * state > [checkpoint] > FOLDER/step-00001200/{model,optimizer}.safetensors, state.json,
 * FOLDER/latest
 *
 * A checkpoint is built under a name that nobody reads, synced, read back, and renamed: a crash or
 * a full disk leaves the old ones as they were.  Nothing of time, host, job name or configuration
 * is in it.  worker/checkpoint/restore.h reads it. */
#ifndef RB_WORKER_CHECKPOINT_CHECKPOINT_H
#define RB_WORKER_CHECKPOINT_CHECKPOINT_H

#include "base/error.h"
#include "proto/checkpoint_folder.h"
#include "worker/state/state.h"

#include <stdint.h>

#define RB_CHECKPOINT_FORMAT "rubato-checkpoint"

enum { RB_CHECKPOINT_VERSION = 1 };

/* What a file holds: tensors by name, data inside `state`. */
struct rb_safetensor;
enum rb_checkpoint_file { RB_CHECKPOINT_WEIGHTS, RB_CHECKPOINT_MOMENTS };

/* The tensors of a file for this model, in no particular order; free *ret_tensors and the
 * names with rb_checkpoint_tensors_free.  Returns how many. */
int rb_checkpoint_tensors(const Rb__Model *model, const struct rb_state *state,
                          enum rb_checkpoint_file file, struct rb_safetensor **ret_tensors);
void rb_checkpoint_tensors_free(struct rb_safetensor *tensors, int n);

/* Write FOLDER/step-N and point FOLDER/latest at it.  job and worker go into the temporary name
 * only, so that two writers never share one.  The caller frees *ret_path. */
int rb_checkpoint_write(const Rb__Model *model, const struct rb_state *state, const char *folder,
                        const char *job, const char *worker, char **ret_path, uint64_t *ret_bytes,
                        struct rb_why *why);

/* Write FOLDER/model.safetensors alone. */
int rb_checkpoint_export(const Rb__Model *model, const struct rb_state *state, const char *folder,
                         uint64_t *ret_bytes, struct rb_why *why);

#endif
