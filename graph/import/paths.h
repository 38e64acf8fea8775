/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluation keeps the paths that training drops (stochastic depth).
 *
 * tidy > [paths] > fold */
#ifndef RB_GRAPH_IMPORT_PATHS_H
#define RB_GRAPH_IMPORT_PATHS_H

#include "graph/graph.h"

/* Applies to a graph of evaluation, before it is folded. */
void rb_import_keep_paths(struct rb_graph *graph);

#endif
