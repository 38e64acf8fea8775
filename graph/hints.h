/* SPDX-License-Identifier: Apache-2.0 */
/* What a model may not be meant to be.  Nothing is refused or changed for it: it is said.
 *
 * import > [hints] > model check, submit */
#ifndef RB_GRAPH_HINTS_H
#define RB_GRAPH_HINTS_H

#include "graph/graph.h"

/* Sentences are appended to `out`, each with a newline behind it.
 *
 * Weights that look like buffers of a module (graph/import/buffers.h finds those that can be
 * nothing else), by their contents or their names; and what is not trained for an infinity or a NaN
 * in it.  Where the exporter has said which is which there is nothing to say. */
void rb_hint_buffers(const struct rb_graph *graph, struct rb_buffer *out);

/* What several microbatches make of a loss of the model's own. */
void rb_hint_loss(enum rb_own_loss loss, struct rb_buffer *out);

#endif
