/* SPDX-License-Identifier: Apache-2.0 */
/* Which weights are buffers: older exporters write a module's parameters and its buffers alike.
 *
 * the last node > [buffers] > tidy
 *
 * Only a tensor that no optimizer could train is taken for a buffer: one that no gradient reaches
 * (a mask that is only compared), one that holds an infinity or a NaN (a mask that is added), and
 * the frequencies of rotary embeddings.  Class weights of a loss are found where the loss is
 * imported (loss.c); tensors that merely look like buffers are left to graph/hints.h. */
#ifndef RB_GRAPH_IMPORT_BUFFERS_H
#define RB_GRAPH_IMPORT_BUFFERS_H

#include "graph/graph.h"

void rb_import_find_buffers(struct rb_graph *graph);

#endif
