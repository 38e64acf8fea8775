/* SPDX-License-Identifier: Apache-2.0 */
/* The constants of all programs in one run of bytes; equal constants are stored once.
 *
 * lower > [constants] > Model.constants */
#ifndef RB_PLAN_COMPILE_CONSTANTS_H
#define RB_PLAN_COMPILE_CONSTANTS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* The place of the bytes in model->constants: the place where a program already has them, including
 * the program being made (not yet in the model), else appended at a multiple of 64. */
uint64_t rb_constants_place(Rb__Model *model, const Rb__Program *making, const void *data,
                            uint64_t bytes);

#endif
