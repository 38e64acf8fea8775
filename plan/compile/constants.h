/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of all programs in one run of bytes; equal ones lie once.
 *
 * lower > [constants] > Model.constants */
#ifndef RB_PLAN_COMPILE_CONSTANTS_H
#define RB_PLAN_COMPILE_CONSTANTS_H

#include "plan.pb-c.h"

#include <stdint.h>

/* Where in model->constants the bytes lie: where a program has them already, the one being made
 * (not yet in the model) included, else appended at a multiple of 64. */
uint64_t rb_constants_place(Rb__Model *model, const Rb__Program *making, const void *data,
                            uint64_t bytes);

#endif
