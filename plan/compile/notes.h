/* SPDX-License-Identifier: Apache-2.0 */
/* What a job does that its author may not expect, as lines for the user who submits it.
 *
 * compile > [notes] > rb_compiled.notes > rubatoctl submit */
#ifndef RB_PLAN_COMPILE_NOTES_H
#define RB_PLAN_COMPILE_NOTES_H

#include "plan/compile/compile_inside.h"

/* The notes of a model whose job is filled in. */
void rb_compile_notes(const struct rb_compile_work *work, int64_t micro_batch,
                      struct rb_buffer *ret_notes);

#endif
