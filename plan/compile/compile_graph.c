/* SPDX-License-Identifier: Apache-2.0 */
/* The graph of one batch size, from the model to the graph that is lowered. */
#include "plan/compile/compile_inside.h"

#include "base/arena.h"
#include "graph/train.h"
#include "plan/compile/check.h"
#include "plan/compile/lower.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *data_key(bool train)
{
    return train ? "spec.data.train" : "spec.data.eval";
}

/* The type of a sample of each of the model's inputs: of the first, of those that the data have by
 * name, and of the first of the others, which takes the targets of a loss in the model. */
static struct rb_tensor_type *find_samples(const struct rb_compile_work *work,
                                           const struct rb_source_info *info,
                                           struct rb_arena *arena, bool **ret_named)
{
    int n = rb_onnx_inputs(work->onnx);
    struct rb_tensor_type *samples = RB_ARENA_NEW(arena, struct rb_tensor_type, n + 1);
    bool *named = RB_ARENA_NEW(arena, bool, n + 1), targets = false;

    samples[0] = info->features;
    for (int i = 1; i < n; i++) {
        const struct rb_source_input *input =
            rb_source_find_input(info, rb_onnx_input_name(work->onnx, i));

        named[i] = input != NULL;
        if (input) {
            samples[i] = input->type;
        } else if (!targets) {
            samples[i] = info->targets;
            targets = true;
        }
    }
    *ret_named = named;
    return samples;
}

/* The forward graph with its loss, as both were written.  The caller owns it, also on failure. */
static int read_graph(struct rb_compile_work *work, int64_t batch, bool train,
                      const struct rb_source_info *info, struct rb_graph **ret_graph)
{
    const Rb__Spec *spec = work->spec;
    const struct rb_source_info *first = rb_source_info(work->train); /* evaluation is held to it */
    RB_CLEANUP(rb_arena_done) struct rb_arena arena = {0};
    bool *named;
    const struct rb_tensor_type *samples = find_samples(work, first, &arena, &named);
    const struct rb_import_options import = {
        .batch = batch,
        .samples = samples,
        .named = named,
        .n_samples = rb_onnx_inputs(work->onnx),
        .from_data = true,
        .seq_len = work->seq_len,
        .train = train,
        .freeze = (const char *const *)spec->model->freeze,
        .n_freeze = (int)spec->model->n_freeze,
        .buffers = (const char *const *)spec->model->buffers,
        .n_buffers = (int)spec->model->n_buffers,
    };
    const struct rb_loss_options loss = {
        .type = spec->loss->type,
        .ignore_index = spec->loss->ignore_index,
        .label_smoothing = spec->loss->label_smoothing,
        .targets = info->targets,
        .sequences = !strcmp(info->format, "text") || !strcmp(info->format, "tokens"),
    };
    struct rb_graph *graph;
    int err = rb_onnx_import(work->onnx, &import, ret_graph, work->why);

    if (err && rb_check_declared(work->onnx, &first->features, work->why))
        return rb_why_add(work->why, RB_EINVAL, "%s", data_key(true));
    if (err)
        return rb_why_add(work->why, err, "spec.model.onnx");
    graph = *ret_graph;
    err = rb_check_features(graph, info, work->why);
    if (!err)
        err = rb_check_named(graph, info, work->why);
    if (err)
        rb_check_declared(work->onnx, &info->features, work->why);
    if (err)
        rb_why_add(work->why, err, "%s", data_key(train));
    if (!err) {
        err = rb_loss_attach(graph, &loss, work->why);
        if (err)
            rb_why_add(work->why, err, "%s", train ? "spec.loss" : data_key(train));
    }
    if (!err) {
        err = rb_check_targets(graph, info, loss.ignore_index, work->why);
        if (err)
            rb_why_add(work->why, err, "%s", data_key(train));
    }
    return err;
}

/* A further sample shows what one alone does not, and whether a number that a sum is divided by is
 * the number of samples or only equal to it.  A model that takes no further sample never has one in
 * a microbatch. */
void rb_compile_judge_loss(struct rb_compile_work *work)
{
    struct rb_why *why = work->why, unused;
    struct rb_graph *graph = NULL;

    if (work->graph->own_loss_of_all != RB_OWN_LOSS_MEAN)
        return;
    work->why = &unused;
    if (!read_graph(work, work->graph->batch + 1, true, rb_source_info(work->train), &graph)) {
        work->graph->own_loss = graph->own_loss;
        work->graph->own_loss_of_all = graph->own_loss_of_all;
    }
    work->why = why;
    rb_graph_free(graph);
}

/* Is attention one node?  On cores where they have tiles for it. */
static bool attends(const struct rb_compile_work *work, const struct rb_graph *graph)
{
    return !work->blocks || (work->tiles && rb_attention_pays(graph));
}

/* The first program's sizes decide for all programs, those of parts too, because training programs
 * have the same forward nodes.  Evaluation has no dropout, so its nodes differ. */
static void fuse_attention(struct rb_compile_work *work, bool train, struct rb_graph *graph)
{
    struct rb_attentions own = {0};

    if (!work->graph && !(work->part && work->attention_known)) {
        rb_attentions_done(&work->attentions);
        if (attends(work, graph))
            rb_attention_find(graph, &work->attentions);
        work->attention_known = true;
    }
    if (!train && work->attentions.n)
        rb_attention_find(graph, &own);
    rb_fuse_attention(graph, train ? &work->attentions : &own);
    rb_attentions_done(&own);
}

int rb_compile_graph(struct rb_compile_work *work, int64_t batch, bool train,
                     const struct rb_source_info *info, struct rb_graph **ret_graph)
{
    const Rb__Spec *spec = work->spec;
    struct rb_graph *graph = NULL;
    int err = read_graph(work, batch, train, info, &graph);

    if (!err)
        err = rb_fuse(graph, work->why);
    if (!err)
        fuse_attention(work, train, graph);
    if (!err && work->part)
        err = work->part->change(&graph, work->part->owner, work->why);
    if (!err && train) {
        err = rb_autodiff(graph, work->why);
        if (err)
            rb_why_add(work->why, err, "spec.model.onnx");
    }
    if (!err && work->blocks)
        err = rb_layout(graph, work->why);
    if (!err && !strcmp(spec->train->precision, "bf16"))
        err = rb_narrow(graph, work->why);
    if (!err && !work->blocks && !work->part && spec->parallel->hypergraph <= 1) {
        rb_fuse_relu(graph);
        rb_fuse_points(graph);
    }
    if (!err && train && work->cuts.n)
        rb_recompute(graph, &work->cuts);
    if (err) {
        rb_graph_free(graph);
        return err;
    }
    *ret_graph = graph;
    return 0;
}

int rb_compile_add(struct rb_compile_work *work, int64_t batch, bool train)
{
    const struct rb_source_info *info = rb_source_info(train ? work->train : work->eval);
    struct rb_graph *graph = NULL;
    char name[48];
    int err = rb_compile_graph(work, batch, train, info, &graph);

    snprintf(name, sizeof(name), "%s b=%" PRId64, train ? "train" : "eval", batch);
    if (!err)
        err = rb_lower_program(graph, name, work->model, work->why);
    rb_graph_free(graph);
    return err;
}
