/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are buffers: older exporters write a module's parameters and its buffers alike.
 *
 * the last node > [buffers] > tidy
 *
 * Only what no optimizer could train is taken for one: what no gradient reaches (a mask that is
 * only compared), what holds an infinity or a NaN (a mask that is added), and the frequencies of
 * rotary embeddings.  Class weights of a loss are found where it is imported (loss.c); what only
 * looks like a buffer is for hints (graph/hints.h). */
#ifndef RB_GRAPH_IMPORT_BUFFERS_H
#define RB_GRAPH_IMPORT_BUFFERS_H

#include "graph/graph.h"

void rb_import_find_buffers(struct rb_graph *graph);

#endif
