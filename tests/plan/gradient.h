/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences, through the real kernels and interpreter; those in double
 * precision are in precise.h. */
#ifndef RB_TESTS_PLAN_GRADIENT_H
#define RB_TESTS_PLAN_GRADIENT_H

#include "tests/plan/tiny.h"

/* For each trained variable of a differentiated graph: the slope of the loss along a random
 * direction in that variable alone, measured with steps of `eps`, against what the contributions
 * say. Ends the test where they differ by more than 2 % of the gradient's length along it.  Takes
 * the graph; the loss. */
double gradient_check(const char *what, struct rb_graph *graph, float eps);

/* In double precision, too, the gradient of an output: the loss is the sum of y times fixed
 * numbers, so that every element of dy differs.  Takes the graph. */
void gradient_check_output(const char *what, struct tiny *tiny, struct rb_value *y);

/* Operators that a gradient went through so far. */
extern bool gradient_seen[RB_OP_COUNT];

#endif
