/* SPDX-License-Identifier: Apache-2.0 */
/* One folder of an ONNX backend test: a model, and data sets of inputs and expected outputs.
 *
 * model test > [model_case] > plan/compile/compile, ctl/forward */
#ifndef RB_CTL_MODEL_CASE_H
#define RB_CTL_MODEL_CASE_H

#include "base/error.h"

#include <stdbool.h>

/* Has the folder a model.onnx and a test_data_set_0? */
bool rb_model_case_is(const char *folder);

/* Run the model on every data set.  0: all outputs are as expected (types and shapes exactly,
 * numbers within 1e-7 + 0.001 of the expected one, bfloat16 within one unit in the last place).
 * RB_EUNSUPPORTED: the model, or the form of the data, is not supported.  Everything else is a
 * failure. */
int rb_model_case_run(const char *folder, struct rb_why *why);

#endif
