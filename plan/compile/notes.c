/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/notes.h"

#include "graph/advice.h"
#include "graph/hints.h"
#include "plan/compile/check.h"

#include <inttypes.h>
#include <string.h>

/* The job file may say how many samples are behind a statistic.  Where it leaves that open, the
 * number followed from the number of devices or from the export, which is hardly intended. */
static void note_norms(const struct rb_compile_work *work, int64_t micro_batch,
                       struct rb_buffer *notes)
{
    int64_t rest = work->spec->train->global_batch % micro_batch;
    bool norms = false;

    for (int i = 0; i < work->graph->n_nodes; i++)
        norms |= work->graph->nodes[i]->op == RB_OP_BATCH_NORM;
    if (!norms)
        return;
    rb_buffer_format(notes,
                     "batch normalization takes its statistics of %" PRId64 " sample%s at a time",
                     micro_batch, micro_batch == 1 ? "" : "s");
    if (rest)
        rb_buffer_format(notes, " (of %" PRId64 " once a step)", rest);
    rb_buffer_text(notes, work->info.fixed_batch > 0
                              ? ", the microbatch of the export\n"
                              : ", the microbatch that was chosen: train.microBatch sets it\n");
}

/* A number less its own mean is 0, so such a layer returns its bias whatever it reads. */
static void note_single(const struct rb_compile_work *work, int64_t micro_batch,
                        struct rb_buffer *notes)
{
    int64_t rest = work->spec->train->global_batch % micro_batch;

    for (int i = 0; i < work->graph->n_nodes; i++) {
        const struct rb_node *node = work->graph->nodes[i];
        bool normalizes = node->op == RB_OP_BATCH_NORM && node->in[0] && node->in[1];
        int64_t each = normalizes ? micro_batch * rb_tensor_elements(&node->in[1]->type) : 0;

        each =
            each ? rb_tensor_elements(&node->in[0]->type) / each : 0; /* of a sample, by channel */
        if (each != 1 || (micro_batch > 1 && rest != 1))
            continue;
        rb_buffer_format(notes,
                         "batch normalization '%s' takes its statistics of a single number%s, and "
                         "then gives its bias whatever it reads: say a train.microBatch %s\n",
                         node->name ? node->name : "", micro_batch > 1 ? " once a step" : "",
                         micro_batch > 1 ? "that train.globalBatch is a multiple of"
                                         : "of 2 or more");
        return;
    }
}

static void note_microbatch(const struct rb_compile_work *work, int64_t micro_batch,
                            struct rb_buffer *notes)
{
    if (work->spec->train->has_micro_batch || micro_batch == work->spec->train->global_batch)
        return;
    if (work->info.fixed_batch > 0)
        rb_buffer_format(notes,
                         "the model was exported for batches of %" PRId64 " only, so every "
                         "microbatch is of that size; export it with a dynamic first axis\n",
                         micro_batch);
    note_norms(work, micro_batch, notes);
}

/* The losses turn logits into probabilities themselves.  From probabilities they make flat ones,
 * and the model learns slowly and not much; from the output of a LogSoftmax they make the same
 * probabilities again. */
static void note_logits(const struct rb_graph *graph, struct rb_buffer *notes)
{
    const struct rb_node *loss = graph->loss->maker, *node = loss->in[0]->maker;
    bool classes = loss->op == RB_OP_CROSS_ENTROPY;
    bool takes_logits = classes || loss->op == RB_OP_BCE_LOGITS;

    while (node && (node->op == RB_OP_RESHAPE || node->op == RB_OP_TRANSPOSE))
        node = node->in[0]->maker;
    if (node && takes_logits && (node->op == RB_OP_SOFTMAX || node->op == RB_OP_SIGMOID))
        rb_buffer_format(notes,
                         "the model ends in a %s, and %s applies a %s by itself, to what comes "
                         "before one: export the model without it\n",
                         node->op == RB_OP_SOFTMAX ? "Softmax" : "Sigmoid",
                         classes ? "cross_entropy" : "bce_with_logits",
                         classes ? "softmax" : "sigmoid");
}

/* Such a model trains, and its author finds out only when the weights are to go back. */
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

/* ---- What the job file says in vain ---- */

/* Does the length of samples follow from the data? */
static bool is_sized(const struct rb_compile_work *work)
{
    const struct rb_source_info *data = rb_source_info(work->train);

    return strcmp(data->format, "text") != 0 && strcmp(data->format, "tokens") != 0 &&
           work->info.input_type.rank == data->features.rank + 1;
}

static void note_unused(const struct rb_compile_work *work, struct rb_buffer *notes)
{
    const Rb__Spec *spec = work->spec;
    const Rb__OptimizerSpec *optimizer = spec->train->optimizer, usual = RB__OPTIMIZER_SPEC__INIT;
    const Rb__ScheduleSpec *schedule = spec->train->schedule;
    const Rb__LossSpec usual_loss = RB__LOSS_SPEC__INIT;
    const bool sgd = work->model->optimizer->kind == RB__OPTIMIZER__KIND__SGD;
    const struct {
        bool unused;
        const char *text;
    } cases[] = {
        {spec->loss->ignore_index != usual_loss.ignore_index &&
             strcmp(spec->loss->type, "cross_entropy") != 0,
         "spec.loss.ignoreIndex is ignored: it goes with cross_entropy only"},
        {sgd && (work->model->optimizer->beta1 != 0.9 || work->model->optimizer->beta2 != 0.999),
         "spec.train.optimizer.betas is ignored: it is adamw's, and sgd has momentum"},
        {sgd && optimizer->eps != usual.eps, "spec.train.optimizer.eps is ignored: it is adamw's"},
        {!strcmp(schedule->type, "constant") && schedule->min_ratio != 0,
         "spec.train.schedule.minRatio is ignored: it goes with linear and cosine"},
        {schedule->warmup > (int64_t)work->model->steps,
         "spec.train.schedule.warmup is longer than the job: the rate never gets to lr"},
        {spec->data->train->has_seq_len && is_sized(work),
         "spec.data.train.seqLen is ignored: it goes with text and tokens"},
        {spec->data->train->n_targets && work->graph && !work->graph->targets,
         "spec.data.train.targets is ignored: the model makes its own loss, and each of its inputs "
         "has other data"},
        {spec->data->eval && spec->train->eval->every == 0,
         "spec.data.eval is ignored: say spec.train.eval.every, after how many steps to evaluate"},
    };

    for (size_t i = 0; i < RB_COUNT(cases); i++)
        if (cases[i].unused)
            rb_buffer_format(notes, "%s\n", cases[i].text);
}

/* The default devices.max is no choice of the author: devices.want counts instead. */
static void note_idle(const struct rb_compile_work *work, int64_t micro_batch,
                      struct rb_buffer *notes)
{
    const Rb__DevicesSpec *devices = work->spec->devices, usual = RB__DEVICES_SPEC__INIT;
    const Rb__ParallelSpec *parallel = work->spec->parallel;
    int64_t microbatches = (work->spec->train->global_batch - 1) / micro_batch + 1;
    uint32_t most = devices->max == usual.max ? devices->want : devices->max;

    if (most > microbatches &&
        (!parallel || (parallel->pipeline <= 1 && parallel->hypergraph <= 1)))
        rb_buffer_format(notes,
                         "a step has %" PRId64 " microbatch%s (train.globalBatch, "
                         "train.microBatch): of %u devices no more than that compute, but in a "
                         "pipeline\n",
                         microbatches, microbatches == 1 ? "" : "es", most);
}

static void note_repeats(const struct rb_compile_work *work, struct rb_buffer *notes)
{
    int64_t samples = rb_source_info(work->train)->samples;

    if (work->spec->train->global_batch > samples)
        rb_buffer_format(notes,
                         "a step takes %" PRId64 " samples, and the data have %" PRId64
                         ": some are in it more than once\n",
                         work->spec->train->global_batch, samples);
}

void rb_compile_notes(const struct rb_compile_work *work, int64_t micro_batch,
                      struct rb_buffer *ret_notes)
{
    note_export(work, ret_notes);
    rb_hint_buffers(work->graph, ret_notes);
    note_microbatch(work, micro_batch, ret_notes);
    note_single(work, micro_batch, ret_notes);
    note_logits(work->graph, ret_notes);
    if (micro_batch < work->spec->train->global_batch)
        rb_hint_loss(rb_check_ignores(work->graph, rb_source_info(work->train))
                         ? work->graph->own_loss
                         : work->graph->own_loss_of_all,
                     ret_notes);
    note_repeats(work, ret_notes);
    note_unused(work, ret_notes);
    note_idle(work, micro_batch, ret_notes);
}
