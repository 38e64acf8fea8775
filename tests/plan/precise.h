/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients against central differences in double precision: the graph is run by the reference
 * kernels, built with doubles for floats. */
#ifndef RB_TESTS_PLAN_PRECISE_H
#define RB_TESTS_PLAN_PRECISE_H

#include "graph/graph.h"

/* For each trained variable of a differentiated graph: the slope of the loss along random
 * directions in that variable alone, against what the contributions say.  Ends the test where they
 * differ by more than a millionth of the gradient's length.  seen: by operator, becomes true for
 * operators between a weight and the loss. */
void precise_check(const char *what, const struct rb_graph *graph, bool *seen);

#endif
