/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction makes which tensor of a program.
 *
 * Program > [makers] > chain, filters */
#ifndef RB_PLAN_COMPILE_MAKERS_H
#define RB_PLAN_COMPILE_MAKERS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* By tensor: the instruction that makes it; -1: none does.  The caller frees it. */
int *rb_makers_find(const Rb__Program *program);

/* The instruction that made the bytes which instruction `before` finds in a tensor: views are
 * tensors of their own that no instruction makes, and share their input's bytes.  -1: it is no
 * activation. */
int rb_makers_of(const Rb__Program *program, const int *makers, int tensor, int before);

/* How many instructions there are up to the loss; 0: it has none. */
uint32_t rb_makers_forward(const Rb__Program *program, const int *makers);

#endif
