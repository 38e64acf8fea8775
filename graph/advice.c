/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/advice_inside.h"

#include "base/arena.h"

#include <inttypes.h>
#include <string.h>

void rb_advice_say(struct rb_advice_search *search, const char *mistake, const char *remedy)
{
    if (search->n < RB_ADVICE_MOST)
        search->found[search->n++] = (struct rb_advice){mistake, remedy, true, false};
}

void rb_advice_say_module(struct rb_advice_search *search, const char *mistake, const char *remedy)
{
    if (search->n < RB_ADVICE_MOST)
        search->found[search->n++] = (struct rb_advice){mistake, remedy, false, false};
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

bool rb_advice_is_new_exporter(const Onnx__ModelProto *proto)
{
    return proto->producer_name && !strcmp(proto->producer_name, "pytorch") &&
           proto->ir_version >= 10;
}

const char *rb_advice_train_remedy(const Onnx__ModelProto *proto)
{
    return rb_advice_is_new_exporter(proto)
               ? "model.train() before the export"
               : "model.train() and training=torch.onnx.TrainingMode.TRAINING";
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
        if (rb_onnx_made_up(tensor->name)) {
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
            rb_advice_is_new_exporter(search->model->proto) ? "optimize=False"
                                                            : "do_constant_folding=False");
}

/* What the newer exporter's optimizer does to a model that is to be trained. */
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
    int folded = 0, off = 0, dropouts = count_nodes(graph, "Dropout");

    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];

        if (is(node, "Conv") && node->n_input > 2 && node->input[1] &&
            rb_onnx_made_up(node->input[1]))
            folded++;
    }
    if (folded && !count_nodes(graph, "BatchNormalization"))
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "exported in evaluation mode: the batch normalization after %d "
                            "convolution%s has been folded into the weights and cannot be trained",
                            folded, folded == 1 ? "" : "s"),
            rb_advice_train_remedy(search->model->proto));
    for (size_t i = 0; i < graph->n_node; i++)
        off += is(graph->node[i], "Dropout") && graph->node[i]->n_output < 2 &&
               graph->node[i]->n_input < 3 && search->model->opset >= 12;
    if (off &&
        off == dropouts) /* beside others, these are how scaled_dot_product_attention is written */
        rb_advice_say(
            search,
            rb_arena_format(search->arena,
                            "%d dropout%s switched off: exported in evaluation mode (while "
                            "training they act here all the same)",
                            off, off == 1 ? " is" : "s are"),
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
                      rb_advice_is_new_exporter(search->model->proto)
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
                                      "%d weight%s %s: only float32 weights are trained",
                                      halves + doubles, halves + doubles == 1 ? " is of" : "s are",
                                      halves ? "half floats" : "doubles"),
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
        rb_advice_say_module(
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
    bool harms;

    check_mode(&search);
    check_names(&search);
    check_lost(&search);
    check_types(&search);
    rb_advice_check_detached(&search);
    rb_advice_check_changed(&search);
    harms = search.n > 0;
    harms = rb_advice_check_shared(&search) || harms;
    for (int i = 0; i < search.n; i++)
        ret_advice[i].harms = harms;
    check_batch(&search);
    check_weights(&search);
    check_versions(&search);
    check_loss(&search);
    return search.n;
}
