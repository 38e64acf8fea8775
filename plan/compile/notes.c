/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/notes.h"

#include "graph/advice.h"
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

/* The losses make probabilities of logits themselves.  Of probabilities they make flat ones, and
 * the model learns slowly and not much; of a LogSoftmax's output the same again. */
static void note_logits(const struct rb_graph *graph, struct rb_buffer *notes)
{
    const struct rb_node *loss = graph->loss->maker, *node = loss->in[0]->maker;
    bool classes = loss->op == RB_OP_CROSS_ENTROPY;

    while (node && (node->op == RB_OP_RESHAPE || node->op == RB_OP_TRANSPOSE))
        node = node->in[0]->maker;
    if (node && ((classes && node->op == RB_OP_SOFTMAX) ||
                 (loss->op == RB_OP_BCE_LOGITS && node->op == RB_OP_SIGMOID)))
        rb_buffer_format(notes,
                         "the model ends in a %s, which %s applies by itself: here it is applied "
                         "twice; export the model without it\n",
                         classes ? "Softmax" : "Sigmoid",
                         classes ? "cross_entropy" : "bce_with_logits");
}

/* Such a model trains, and whoever exported it finds out when the weights are to go back. */
static void note_export(const struct rb_compile_work *work, struct rb_buffer *notes)
{
    struct rb_advice advice[RB_ADVICE_MOST];
    struct rb_arena arena = {0};
    int n = rb_advice_find(work->onnx, &arena, advice), harms = 0;

    for (int i = 0; i < n; i++) {
        harms += advice[i].harms;
        if (advice[i].harms)
            rb_buffer_format(notes, "%s\n", advice[i].mistake);
    }
    if (harms)
        rb_buffer_format(notes, "what to export it with instead: rubatoctl model check %s\n",
                         work->spec->model->onnx);
    rb_arena_done(&arena);
}

void rb_compile_notes(const struct rb_compile_work *work, int64_t micro_batch,
                      struct rb_buffer *ret_notes)
{
    note_export(work, ret_notes);
    rb_hint_buffers(work->graph, ret_notes);
    note_norms(work, micro_batch, ret_notes);
    note_logits(work->graph, ret_notes);
    if (micro_batch < work->spec->train->global_batch)
        rb_hint_loss(work->graph->own_loss, ret_notes);
}
