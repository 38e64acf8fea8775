/* SPDX-License-Identifier: Apache-2.0 */
/* Does a checkpoint folder hold something that a new job should go on from?
 *
 * checkpoint.path > [resume] > submit
 *
 * Looks at FOLDER/step-*\/state.json, newest first, and reads all files that it lists. */
#ifndef RB_DAEMON_RPC_RESUME_H
#define RB_DAEMON_RPC_RESUME_H

#include "base/buffer.h"
#include "base/error.h"
#include "plan.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

/* Looks where workers would write (rb_file_real of `path`).
 *
 * 0 with *ret_folder (free) and *ret_step, the newest that is whole, or with NULL where there is no
 * checkpoint (or no folder).  ret_notes tells, a line each: of newer ones that are damaged; that
 * the checkpoint is of another numeric class (which any_class allows); that nothing can be written
 * in the folder.  RB_EREFUSED: the newest belongs to another job or class, or none is whole, with a
 * sentence that says which settings differ and what to do. */
int rb_resume_find(const char *path, const Rb__Model *model, bool any_class, char **ret_folder,
                   int64_t *ret_step, struct rb_buffer *ret_notes, struct rb_why *why);

#endif
