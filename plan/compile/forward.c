/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling a model without a job: for `model run`, `model check` and `profile`. */
#include "base/arena.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"
#include "plan/compile/check.h"
#include "plan/compile/compile.h"
#include "plan/compile/initial.h"
#include "plan/compile/lower.h"
#include "plan/compile/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int lower(const struct rb_graph *graph, const char *weights, struct rb_compiled *compiled,
                 struct rb_why *why)
{
    char name[48];
    int err;

    compiled->model = rb_alloc(sizeof(*compiled->model));
    rb__model__init(compiled->model);
    compiled->model->format = 1;
    snprintf(name, sizeof(name), "%s b=%" PRId64, graph->train ? "train" : "forward", graph->batch);
    err = rb_lower_variables(graph, compiled->model, why);
    if (!err)
        err = rb_lower_program(graph, name, compiled->model, why);
    return err ? err
               : rb_initial_weights(graph, "--weights", weights, compiled->model,
                                    &compiled->weights, &compiled->notes, why);
}

int rb_compile_opened(const struct rb_onnx *onnx, const struct rb_import_options *options,
                      const char *weights, struct rb_compiled *ret_compiled, struct rb_why *why)
{
    struct rb_compiled compiled = {0};
    struct rb_graph *graph = NULL;
    int err = rb_onnx_import(onnx, options, &graph, why);

    if (!err && graph->n_outputs < 1)
        err = rb_why_set(why, RB_EINVAL, "the model has no output");
    if (!err)
        err = rb_fuse(graph, why);
    if (!err) {
        graph->targets = NULL; /* labels of the model's own loss are an ordinary input */
        err = lower(graph, weights, &compiled, why);
    }
    if (err)
        rb_compiled_done(&compiled);
    else
        *ret_compiled = compiled;
    rb_graph_free(graph);
    return err;
}

/* ---- Sizes where there are no data ---- */

enum { USUAL = 10, OTHERS = 32, MOST_SIZE = 4096 };

static int check_asked(const struct rb_onnx_info *info, bool axes,
                       const struct rb_import_options *options, struct rb_why *why)
{
    if (options->batch > 0 && info->fixed_batch > 0 && options->batch != info->fixed_batch)
        return rb_why_set(why, RB_EINVAL,
                          "a batch of %" PRId64 " was asked for, but the model was exported for "
                          "batches of %" PRId64 " only",
                          options->batch, info->fixed_batch);
    if (options->free_size > 0 && !axes)
        return rb_why_set(why, RB_EINVAL,
                          "a size of %" PRId64 " was asked for, but no axis of the model's inputs "
                          "behind the first is free",
                          options->free_size);
    return 0;
}

static int import_so(const struct rb_onnx *onnx, const struct rb_import_options *options)
{
    struct rb_graph *graph = NULL;
    struct rb_why why;
    int err = rb_onnx_import(onnx, options, &graph, &why);

    if (!err)
        rb_graph_free(graph);
    return err;
}

/* Tries this size for the free axes, with as many samples as the model takes. */
static int try_size(const struct rb_onnx *onnx, bool batch, int64_t size,
                    struct rb_import_options *options)
{
    static const int64_t batches[] = {2, 1};
    struct rb_import_options tried = *options;
    int err = 0;

    tried.free_size = size;
    for (size_t i = 0; i < (batch ? RB_COUNT(batches) : 1); i++) {
        tried.batch = batch ? batches[i] : options->batch;
        err = import_so(onnx, &tried);
        if (err)
            continue;
        *options = tried;
        return 0;
    }
    return err;
}

/* After the usual sizes come those of weights, which an axis may have to fit.  Where the model
 * takes no size, the first are kept, so that its import says why. */
int rb_compile_bind(const struct rb_onnx *onnx, struct rb_import_options *options,
                    struct rb_why *why)
{
    int64_t sizes[USUAL + OTHERS] = {16, 32, 64, 128, 224, 256, 512, 8, 4, 2};
    int err, n = USUAL, input = 0, axis = 0;
    bool axes = rb_onnx_next_free(onnx, &input, &axis), batch;
    struct rb_onnx_info info;

    err = rb_onnx_info(onnx, &info, why);
    if (!err)
        err = check_asked(&info, axes, options, why);
    if (err)
        return err;
    batch = options->batch == 0 && info.input_type.rank > 0 && info.input_type.dim[0] < 0;
    if (!axes || options->free_size > 0) {
        sizes[0] = options->free_size;
        n = 1;
    }
    err = try_size(onnx, batch, sizes[0], options);
    if (n > 1 && err && err != RB_EUNSUPPORTED) /* RB_EUNSUPPORTED depends on no size */
        n += rb_onnx_lengths(onnx, sizes + n, OTHERS);
    for (int i = 1; err && i < n; i++)
        if (sizes[i] > 0 && sizes[i] <= MOST_SIZE)
            err = try_size(onnx, batch, sizes[i], options);
    if (err) {
        options->free_size = sizes[0];
        options->batch = batch ? 1 : options->batch;
    }
    return 0;
}

/* ---- Training ---- */

/* The type of one sample of a value whose first axis is the batch. */
static int of_one(const struct rb_graph *graph, const struct rb_value *value, const char *what,
                  struct rb_tensor_type *ret_type, struct rb_why *why)
{
    struct rb_tensor_type type = value->type;

    if (type.rank < 1 || type.dim[0] != graph->batch)
        return rb_why_set(why, RB_EUNSUPPORTED, "the first axis of %s, '%s', is not the batch",
                          what, value->name);
    type.rank--;
    memmove(type.dim, type.dim + 1, sizeof(type.dim[0]) * (size_t)type.rank);
    *ret_type = type;
    return 0;
}

/* Are the elements of the output the logits of classes, for each token or each sample?  Then the
 * targets have one class for each of these. */
static bool has_classes(const struct rb_graph *graph, const struct rb_tensor_type *output,
                        struct rb_tensor_type *ret_targets)
{
    const struct rb_tensor_type *input = &graph->features->type;
    struct rb_tensor_type targets = {.dtype = RB_I64, .rank = output->rank - 2};
    bool tokens = input->dtype == RB_I64 && input->rank == output->rank - 1;

    if (output->rank < 2 || output->dim[output->rank - 1] < 2)
        return false;
    for (int i = 0; i < targets.rank; i++) {
        targets.dim[i] = output->dim[i + 1];
        tokens = tokens && input->dim[i + 1] == targets.dim[i];
    }
    *ret_targets = targets;
    return tokens || output->rank == 2;
}

/* An output of one number is a loss.  Else attach a loss that fits: apart from the time it takes,
 * it does not matter which. */
static int attach_any_loss(struct rb_graph *graph, struct rb_why *why)
{
    struct rb_loss_options loss = {.type = "mse", .ignore_index = -100, .sequences = true};
    const struct rb_value *output = graph->n_outputs ? graph->outputs[0] : NULL;
    int err = 0;

    if (output && rb_tensor_elements(&output->type) == 1) {
        loss.type = "graph";
    } else if (output && has_classes(graph, &output->type, &loss.targets)) {
        loss.type = "cross_entropy";
    } else if (output) {
        err = of_one(graph, output, "the model's first output", &loss.targets, why);
    }
    return err ? err : rb_loss_attach(graph, &loss, why);
}

/* The training graph of an open model. */
static int train_graph(const struct rb_onnx *onnx, const struct rb_import_options *bound,
                       struct rb_graph **ret_graph, struct rb_why *why)
{
    RB_CLEANUP(rb_arena_done) struct rb_arena arena = {0};
    struct rb_import_options options = *bound;
    struct rb_graph *graph = NULL;
    int err, n = rb_onnx_inputs(onnx);
    bool *named = RB_ARENA_NEW(&arena, bool, n + 1);

    for (int i = 1; i < n; i++) /* labels too: only the source of the name differs */
        named[i] = true;
    options.samples = RB_ARENA_NEW(&arena, struct rb_tensor_type, n + 1);
    options.named = named;
    options.n_samples = n;
    options.from_data = true;
    options.train = true;
    if (n - 1 > RB_SOURCE_INPUTS)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "the model has %d further inputs, and the most that data have is %d: "
                          "export one input of several columns",
                          n - 1, RB_SOURCE_INPUTS);
    err = rb_onnx_import(onnx, &options, &graph, why);
    if (!err)
        err = rb_check_types(graph, why);
    if (!err)
        err = attach_any_loss(graph, why);
    if (!err)
        err = rb_fuse(graph, why);
    if (!err)
        err = rb_autodiff(graph, why);
    if (!err)
        err = rb_layout(graph, why);
    if (err)
        rb_graph_free(graph);
    else
        *ret_graph = graph;
    return err;
}

int rb_compile_trainable(const struct rb_onnx *onnx, const struct rb_import_options *options,
                         struct rb_why *why)
{
    struct rb_graph *graph = NULL;
    int err = train_graph(onnx, options, &graph, why);

    rb_graph_free(graph);
    return err;
}

int rb_compile_training(const struct rb_onnx *onnx, const char *onnx_path,
                        const struct rb_import_options *options, struct rb_compiled *ret_compiled,
                        struct rb_why *why)
{
    struct rb_compiled compiled = {0};
    struct rb_graph *graph = NULL;
    int err = train_graph(onnx, options, &graph, why);

    if (!err)
        err = lower(graph, NULL, &compiled, why);
    if (err) {
        rb_compiled_done(&compiled);
    } else {
        rb_summary_write(onnx_path, &compiled);
        *ret_compiled = compiled;
    }
    rb_graph_free(graph);
    return err;
}
