/* SPDX-License-Identifier: Apache-2.0 */
/* Which sample of the batch an element of a value belongs to.
 *
 * a graph as imported > [samples] > loss
 *
 * A loss is a sum over samples only where no sample has a part in another sample's loss.  Batch
 * norms count as keeping samples apart: plan/compile/notes.c says that their statistics are those
 * of a microbatch.  Where no rule says otherwise samples count as mixed. */
#ifndef RB_GRAPH_SAMPLES_H
#define RB_GRAPH_SAMPLES_H

#include "graph/graph.h"

enum rb_samples_kind {
    RB_SAMPLES_NONE,  /* depends on no sample: the same in every microbatch */
    RB_SAMPLES_APART, /* each element depends on one sample */
    RB_SAMPLES_MIXED,
};

struct rb_samples {
    enum rb_samples_kind kind;
    int64_t inner; /* APART: element i is of sample i / inner % batch */
};

/* By value, of n_values; the caller frees it.  With a batch of one sample nothing is mixed. */
struct rb_samples *rb_samples_find(const struct rb_graph *graph);

#endif
