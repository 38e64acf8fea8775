/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling a model without a job: for `model run`, `model check` and `profile`. */
#include "base/arena.h"
#include "graph/onnx/onnx.h"
#include "graph/train.h"
#include "plan/compile/compile.h"
#include "plan/compile/initial.h"
#include "plan/compile/lower.h"
#include "plan/compile/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* The batch to bind: what was asked for, else 1 to a symbolic axis; 0 leaves it to the model. */
static int choose_batch(const struct rb_onnx *onnx, int64_t asked, int64_t *ret_batch,
                        struct rb_why *why)
{
    struct rb_onnx_info info;
    int err = rb_onnx_info(onnx, &info, why);

    if (err)
        return err;
    if (asked > 0 && info.fixed_batch > 0 && asked != info.fixed_batch)
        return rb_why_set(why, RB_EINVAL,
                          "a batch of %" PRId64 " was asked for, but the model was exported for "
                          "batches of %" PRId64 " only",
                          asked, info.fixed_batch);
    *ret_batch = asked > 0 ? asked : info.input_type.rank > 0 && info.input_type.dim[0] < 0 ? 1 : 0;
    return 0;
}

static int lower(const struct rb_graph *graph, struct rb_compiled *compiled, struct rb_why *why)
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
               : rb_initial_weights(graph, NULL, compiled->model, &compiled->weights, NULL, why);
}

int rb_compile_opened(const struct rb_onnx *onnx, const struct rb_import_options *options,
                      struct rb_compiled *ret_compiled, struct rb_why *why)
{
    struct rb_compiled compiled = {0};
    struct rb_graph *graph = NULL;
    int err = rb_onnx_import(onnx, options, &graph, why);

    if (!err && graph->n_outputs < 1)
        err = rb_why_set(why, RB_EINVAL, "the model has no output");
    if (!err)
        err = rb_fuse(graph, why);
    if (!err)
        err = lower(graph, &compiled, why);
    if (err)
        rb_compiled_done(&compiled);
    else
        *ret_compiled = compiled;
    rb_graph_free(graph);
    return err;
}

int rb_compile_forward(const char *onnx_path, int64_t batch, struct rb_compiled *ret_compiled,
                       struct rb_why *why)
{
    struct rb_import_options options = {0};
    struct rb_onnx *onnx = NULL;
    int err = rb_onnx_open(onnx_path, 0, &onnx, why);

    if (!err)
        err = choose_batch(onnx, batch, &options.batch, why);
    if (!err)
        err = rb_compile_opened(onnx, &options, ret_compiled, why);
    if (!err)
        rb_summary_write(onnx_path, ret_compiled);
    rb_onnx_close(onnx);
    return err;
}

/* A loss that fits any output: what it is does not matter to what can be differentiated. */
static int attach_any_loss(struct rb_graph *graph, struct rb_why *why)
{
    struct rb_loss_options loss = {.type = "mse"};

    if (graph->n_outputs < 1 || graph->outputs[0]->type.dtype != RB_F32)
        return rb_why_set(why, RB_EUNSUPPORTED, "the model's first output is not float32");
    if (rb_tensor_elements(&graph->outputs[0]->type) == 1) {
        loss.type = "graph";
        return rb_loss_attach(graph, &loss, why);
    }
    graph->targets =
        rb_graph_value(graph, RB_VALUE_INPUT, "targets", &graph->outputs[0]->type, NULL);
    loss.targets = graph->outputs[0]->type;
    if (loss.targets.rank < 1 || loss.targets.dim[0] != graph->batch)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "the first axis of the model's first output is not the batch");
    loss.targets.rank--;
    memmove(loss.targets.dim, loss.targets.dim + 1,
            sizeof(loss.targets.dim[0]) * (size_t)loss.targets.rank);
    return rb_loss_attach(graph, &loss, why);
}

/* The training graph of an open model. */
static int train_graph(const struct rb_onnx *onnx, int64_t batch, struct rb_graph **ret_graph,
                       struct rb_why *why)
{
    struct rb_import_options options = {.train = true};
    struct rb_graph *graph = NULL;
    int err = choose_batch(onnx, batch, &options.batch, why);

    if (!err)
        err = rb_onnx_import(onnx, &options, &graph, why);
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

int rb_compile_trainable(const char *onnx_path, struct rb_why *why)
{
    struct rb_onnx *onnx = NULL;
    struct rb_graph *graph = NULL;
    int err = rb_onnx_open(onnx_path, 0, &onnx, why);

    if (!err)
        err = train_graph(onnx, 0, &graph, why);
    rb_graph_free(graph);
    rb_onnx_close(onnx);
    return err;
}

int rb_compile_training(const char *onnx_path, int64_t batch, struct rb_compiled *ret_compiled,
                        struct rb_why *why)
{
    struct rb_compiled compiled = {0};
    struct rb_onnx *onnx = NULL;
    struct rb_graph *graph = NULL;
    int err = rb_onnx_open(onnx_path, 0, &onnx, why);

    if (!err)
        err = train_graph(onnx, batch, &graph, why);
    if (!err)
        err = lower(graph, &compiled, why);
    if (err) {
        rb_compiled_done(&compiled);
    } else {
        rb_summary_write(onnx_path, &compiled);
        *ret_compiled = compiled;
    }
    rb_graph_free(graph);
    rb_onnx_close(onnx);
    return err;
}
