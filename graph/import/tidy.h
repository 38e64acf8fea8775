/* SPDX-License-Identifier: Apache-2.0 */
/* The end of an import: find the buffers, fold, drop values that are not read, check what is left.
 *
 * import > [tidy] > fold, buffers, paths */
#ifndef RB_GRAPH_IMPORT_TIDY_H
#define RB_GRAPH_IMPORT_TIDY_H

#include "graph/graph.h"

int rb_import_tidy(struct rb_graph *graph, struct rb_why *why);

#endif
