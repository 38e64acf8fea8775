/* SPDX-License-Identifier: Apache-2.0 */
/* What in a model may be unintended.  Nothing is refused or changed for it; the user is told.
 *
 * import > [hints] > model check, submit */
#ifndef RB_GRAPH_HINTS_H
#define RB_GRAPH_HINTS_H

#include "graph/graph.h"

/* Sentences are appended to `out`, each with a newline behind it.
 *
 * Weights that look like buffers of a module by their contents or names (graph/import/buffers.h
 * finds those that can be nothing else); and tensors that are not trained because they have an
 * infinity or a NaN.  Where the exporter marks parameters and buffers there is nothing to say. */
void rb_hint_buffers(const struct rb_graph *graph, struct rb_buffer *out);

/* What a loss of the model's own becomes over several microbatches. */
void rb_hint_loss(enum rb_own_loss loss, struct rb_buffer *out);

#endif
