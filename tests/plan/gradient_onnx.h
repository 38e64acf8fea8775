/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of every ONNX operator that is said to have one. */
#ifndef RB_TESTS_PLAN_GRADIENT_ONNX_H
#define RB_TESTS_PLAN_GRADIENT_ONNX_H

void gradient_onnx_cases(void **state); /* each case is right */
void gradient_onnx_all(void **state);   /* each operator of the table has a case */

#endif
