/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/advice_inside.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void rb_advice_say(struct rb_advice_search *search, const char *mistake, const char *remedy)
{
    if (search->n < RB_ADVICE_MOST)
        search->found[search->n++] = (struct rb_advice){mistake, remedy};
}

static bool is(const Onnx__NodeProto *node, const char *op)
{
    return node->op_type && !strcmp(node->op_type, op);
}

static int count_nodes(const Onnx__GraphProto *graph, const char *op)
{
    int n = 0;

    for (size_t i = 0; i < graph->n_node; i++)
        n += is(graph->node[i], op);
    return n;
}

/* The exporter behind dynamo=True has other switches than the one before it, which never wrote
 * IR 10. */
static bool is_new_exporter(const Onnx__ModelProto *proto)
{
    return proto->producer_name && !strcmp(proto->producer_name, "pytorch") &&
           proto->ir_version >= 10;
}

const char *rb_advice_train_remedy(const Onnx__ModelProto *proto)
{
    return is_new_exporter(proto) ? "model.train() before the export"
                                  : "model.train() and training=torch.onnx.TrainingMode.TRAINING";
}

/* From torch 2.5 on the older exporter has to be asked for. */
static bool is_asked_for(const Onnx__ModelProto *proto)
{
    int major = 0, minor = 0;

    if (proto->producer_version)
        sscanf(proto->producer_version, "%3d.%3d", &major, &minor);
    return major > 2 || (major == 2 && minor >= 5);
}

/* "onnx::MatMul_123", "342": names that the exporter made up for what it had computed. */
static bool is_made_up(const char *name)
{
    return !strncmp(name, "onnx::", 6) || (*name && strspn(name, "0123456789") == strlen(name));
}

static void check_names(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;
    const char *example = NULL;
    char room[80];
    int n = 0, weights = 0;

    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];

        if (tensor->data_type != RB_F32 || tensor->n_dims == 0 ||
            rb_onnx_kind(search->model, tensor->name) == RB_ONNX_CONSTANT)
            continue;
        weights++;
        if (is_made_up(tensor->name)) {
            n++;
            example = example ? example : tensor->name;
        }
    }
    if (n)
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "%d of %d weights lost their names (%s ...): the exporter computed "
                            "something from them, and trained weights cannot go back into the "
                            "module",
                            n, weights, rb_onnx_quote(example, room)),
            is_new_exporter(search->model->proto) ? "optimize=False" : "do_constant_folding=False");
}

/* What the optimizer of the newer exporter does to a model that is to be trained. */
static void check_lost(struct rb_advice_search *search)
{
    const char *example = NULL;
    int n = rb_onnx_lost(search->model, &example);
    char room[80];

    if (n)
        rb_advice_say(
            search,
            rb_arena_format(
                search->arena,
                "%d of the module's parameters were replaced (%s ...): the exporter has merged "
                "those that were equal, as all norms and biases are before they are trained, or "
                "computed something from them",
                n, rb_onnx_quote(example, room)),
            "optimize=False");
}

/* In evaluation mode batch norms are folded into convolutions, and dropout is gone. */
static void check_mode(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;
    int folded = 0, off = 0;

    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];

        if (is(node, "Conv") && node->n_input > 2 && node->input[1] && is_made_up(node->input[1]))
            folded++;
    }
    if (folded && !count_nodes(graph, "BatchNormalization"))
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "exported in evaluation mode: the batch normalization behind %d "
                            "convolutions has been folded into their weights and cannot be trained",
                            folded),
            rb_advice_train_remedy(search->model->proto));
    for (size_t i = 0; i < graph->n_node; i++)
        off += is(graph->node[i], "Dropout") && graph->node[i]->n_output < 2 &&
               graph->node[i]->n_input < 3 && search->model->opset >= 12;
    if (off)
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "%d dropouts are switched off: exported in evaluation mode (they act "
                            "while training here all the same)",
                            off),
            rb_advice_train_remedy(search->model->proto));
}

static void check_batch(struct rb_advice_search *search)
{
    struct rb_onnx_info info;
    struct rb_why why;

    if (rb_onnx_info(search->model, &info, &why) == 0 && info.fixed_batch > 0)
        rb_advice_say(search,
                      rb_arena_format(search->arena,
                                      "exported for batches of %" PRId64
                                      " only: every microbatch must have "
                                      "that size",
                                      info.fixed_batch),
                      is_new_exporter(search->model->proto)
                          ? "dynamic_shapes with a dimension for the batch"
                          : "dynamic_axes with the first axis of each input");
}

static void check_types(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;
    int halves = 0, doubles = 0;

    for (size_t i = 0; i < graph->n_initializer; i++) {
        const Onnx__TensorProto *tensor = graph->initializer[i];

        if (tensor->n_dims == 0)
            continue;
        halves += tensor->data_type == RB_F16 || tensor->data_type == RB_BF16;
        doubles += tensor->data_type == RB_F64;
    }
    if (halves || doubles)
        rb_advice_say(search,
                      rb_arena_format(search->arena,
                                      "%d weights are %s: only float32 weights are trained",
                                      halves + doubles, halves ? "half floats" : "doubles"),
                      "model.float() before the export");
}

static void check_weights(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;

    if (!graph->n_initializer && search->model->n_inputs > 2)
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "the file has no weights: %d inputs stand where they should be",
                            search->model->n_inputs - 1),
            "export_params=True (the default)");
}

static void check_versions(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;
    char room[80];

    if (search->model->opset < 13)
        rb_advice_say(search,
                      rb_arena_format(search->arena,
                                      "opset %" PRId64 " is old: operators have had other meanings",
                                      search->model->opset),
                      "opset_version=17");
    for (size_t i = 0; i < graph->n_node; i++) {
        const char *domain = graph->node[i]->domain;

        if (!domain || !domain[0] || !strcmp(domain, "ai.onnx") ||
            rb_onnx_function(search->model, graph->node[i]))
            continue;
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "operators of the domain '%s': the exporter found no ONNX operator for "
                            "a part of the model and left it to others",
                            rb_onnx_quote(domain, room)),
            "no operator_export_type, and opset_version=17");
        return;
    }
}

static void check_loss(struct rb_advice_search *search)
{
    const Onnx__GraphProto *graph = search->model->proto->graph;

    if (count_nodes(graph, "SoftmaxCrossEntropyLoss") +
        count_nodes(graph, "NegativeLogLikelihoodLoss"))
        rb_advice_say(
            search,
            "the loss is part of the model: it is trained with loss.type: graph, and is slower "
            "and less precise than the loss of the job file; label smoothing may have been dropped "
            "without a word",
            "a module that returns its logits; the loss is the job file's");
}

int rb_advice_find(const struct rb_onnx *model, struct rb_arena *arena,
                   struct rb_advice ret_advice[RB_ADVICE_MOST])
{
    struct rb_advice_search search = {model, arena, ret_advice, 0};

    check_mode(&search);
    check_names(&search);
    check_lost(&search);
    rb_advice_check_shared(&search);
    check_batch(&search);
    check_types(&search);
    check_weights(&search);
    check_versions(&search);
    check_loss(&search);
    return search.n;
}

/* As a variable of the call, by its name where that is one. */
static void add_variable(const char *name, int i, struct rb_buffer *variables)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    bool plain =
        name[0] && strchr(letters, name[0]) &&
        strspn(name, letters) + strspn(name + strspn(name, letters), "0123456789") == strlen(name);

    if (plain)
        rb_buffer_text(variables, name);
    else
        rb_buffer_format(variables, "x%d", i);
}

const char *rb_advice_call(const struct rb_onnx *model, struct rb_arena *arena)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer names = {0}, axes = {0}, variables = {0};
    bool fresh = is_new_exporter(model->proto);
    char room[80];

    for (int i = 0; i < model->n_inputs && i < 8; i++) {
        const char *name = rb_onnx_quote(model->inputs[i]->name, room);

        rb_buffer_text(&variables, i ? ", " : "");
        if (model->n_inputs > 1)
            add_variable(name, i, &variables);
        rb_buffer_format(&names, "%s\"%s\"", i ? ", " : "", name);
        if (fresh)
            rb_buffer_format(&axes, "%s{0: torch.export.Dim(\"batch\")}", i ? ", " : "");
        else
            rb_buffer_format(&axes, "%s\"%s\": {0: \"batch\"}", i ? ", " : "", name);
    }
    rb_buffer_text(&variables, model->n_inputs > 1 ? "" : "x,");
    rb_buffer_text(&names, "");
    rb_buffer_text(&axes, "");
    if (fresh)
        return rb_arena_format(
            arena,
            "torch.onnx.export(model.train(), (%s), \"model.onnx\", dynamo=True, optimize=False, "
            "opset_version=18, input_names=[%s], dynamic_shapes=(%s,))",
            variables.data, names.data, axes.data);
    return rb_arena_format(
        arena,
        "torch.onnx.export(model.train(), (%s), \"model.onnx\", %sopset_version=17, "
        "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, "
        "input_names=[%s], dynamic_axes={%s})%s",
        variables.data, is_asked_for(model->proto) ? "dynamo=False, " : "", names.data, axes.data,
        is_asked_for(model->proto) ? "" : " # from torch 2.5 on with dynamo=False");
}
