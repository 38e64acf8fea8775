/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of compiling: for compile*.c alone.
 *
 * compile > [compile_microbatch, compile_recompute: which programs there are] > compile_graph */
#ifndef RB_PLAN_COMPILE_COMPILE_INSIDE_H
#define RB_PLAN_COMPILE_COMPILE_INSIDE_H

#include "plan/compile/compile.h"

#include "data/source.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"
#include "plan/compile/recompute.h"

/* Everything open while a job is compiled. */
struct rb_compile_work {
    const Rb__Spec *spec;
    struct rb_onnx *onnx;
    struct rb_onnx_info info;
    struct rb_source *train, *eval;
    size_t data_files; /* of both */
    int64_t seq_len;
    bool blocks;            /* activations may be in blocks of channels, which GPUs do not take */
    bool tiles;             /* cores have kernels/cpu/attention_tile.h's, for this precision */
    struct rb_graph *graph; /* the training graph of a whole microbatch, nothing computed again */
    struct rb_attentions attentions;    /* that are one node, as `graph`, the first, has them */
    bool attention_known;               /* for parts: the first is one of a whole microbatch */
    struct rb_recompute_cuts cuts;      /* for recomputation, in all graphs but that one */
    char recomputed[128];               /* of it, for the summary */
    const struct rb_compile_part *part; /* that is compiled now; NULL: the whole model */
    Rb__Model *model;
    struct rb_why *why;
};

/* Open the sources of training and evaluation, and find how long sequences are. */
int rb_compile_open_data(struct rb_compile_work *work);

/* The graph of a batch size after its loss and all passes, for samples as `info` describes them.
 * train: differentiated.  Free it with rb_graph_free. */
int rb_compile_graph(struct rb_compile_work *work, int64_t batch, bool train,
                     const struct rb_source_info *info, struct rb_graph **ret_graph);
/* Judge the model's own loss: what a further sample in a microbatch would make of it. */
void rb_compile_judge_loss(struct rb_compile_work *work);
/* Make, lower and drop the graph of one more batch size. */
int rb_compile_add(struct rb_compile_work *work, int64_t batch, bool train);

/* Decide how many samples a microbatch has.  This also makes the model, its state, its first
 * program and that program's graph. */
int rb_compile_microbatch(struct rb_compile_work *work, int64_t *ret_micro_batch);
/* The programs of the other batch sizes: for the remainder of a global batch, and for evaluation,
 * which goes through its samples in chunks of a microbatch and a remainder. */
int rb_compile_add_others(struct rb_compile_work *work, int64_t micro_batch);

/* Decide what is computed again, if anything; all programs are then made anew. */
int rb_compile_recompute(struct rb_compile_work *work, int64_t micro_batch);

#endif
