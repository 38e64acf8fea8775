/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/notes.h"

#include "graph/hints.h"

#include <inttypes.h>

/* How many samples are behind a statistic is the job file's to say; where it has left that open it
 * followed from the number of devices, which hardly is what anybody meant. */
static void note_norms(const struct rb_compile_work *work, int64_t micro_batch,
                       struct rb_buffer *notes)
{
    int64_t rest = work->spec->train->global_batch % micro_batch;
    bool norms = false;

    for (int i = 0; i < work->graph->n_nodes; i++)
        norms |= work->graph->nodes[i]->op == RB_OP_BATCH_NORM;
    if (!norms || work->spec->train->has_micro_batch || work->info.fixed_batch > 0 ||
        micro_batch == work->spec->train->global_batch)
        return;
    rb_buffer_format(notes,
                     "batch normalization takes its statistics of %" PRId64 " sample%s at a time",
                     micro_batch, micro_batch == 1 ? "" : "s");
    if (rest)
        rb_buffer_format(notes, " (of %" PRId64 " once a step)", rest);
    rb_buffer_text(notes, ", the microbatch that was chosen: train.microBatch sets it\n");
}

void rb_compile_notes(const struct rb_compile_work *work, int64_t micro_batch,
                      struct rb_buffer *ret_notes)
{
    rb_hint_buffers(work->graph, ret_notes);
    note_norms(work, micro_batch, ret_notes);
    if (micro_batch < work->spec->train->global_batch)
        rb_hint_loss(work->graph->own_loss, ret_notes);
}
