/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of gradient rules by subject; test_gradient.c runs them. */
#ifndef RB_TESTS_PLAN_GRADIENT_TESTS_H
#define RB_TESTS_PLAN_GRADIENT_TESTS_H

/* gradient_elementwise.c */
void unary(void **state);
void steps(void **state);
void gelu_tanh(void **state);
void binary(void **state);
void power(void **state);
void power_of_nothing(void **state);
void where(void **state);

/* gradient_movement.c */
void movement(void **state);
void split_and_concat(void **state);
void gather(void **state);

/* gradient_layers.c */
void reductions(void **state);
void products(void **state);
void convolutions(void **state);
void norms(void **state);
void frozen_norm(void **state);
void computed_norm(void **state);
void pools(void **state);
void dropout(void **state);
void attention(void **state);

/* gradient_models.c */
void losses(void **state);
void whole_models(void **state);
void layouts(void **state);
void generated_models(void **state);

/* gradient_onnx.c */
void gradient_onnx_cases(void **state); /* each case is right */
void gradient_onnx_all(void **state);   /* each operator of the table has a case */

#endif
