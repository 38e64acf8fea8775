/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/shapes/shapes.h"
#include "graph/train.h"

#include <inttypes.h>
#include <string.h>

static struct rb_tensor_type batched(const struct rb_graph *graph, const struct rb_tensor_type *one)
{
    struct rb_tensor_type type = *one;

    memmove(type.dim + 1, type.dim, sizeof(type.dim[0]) * (size_t)(RB_MAX_RANK - 1));
    type.dim[0] = graph->batch;
    type.rank++;
    return type;
}

/* The input "targets": the model's own second input, or a new one. */
static int make_targets(struct rb_graph *graph, const struct rb_loss_options *options,
                        struct rb_why *why)
{
    char have[RB_TENSOR_TEXT], want[RB_TENSOR_TEXT];
    struct rb_tensor_type type;

    if (options->targets.dtype == RB_NONE)
        return rb_why_set(why, RB_EINVAL,
                          "%s needs targets, and the data have none: say the name of their file "
                          "as targets, beside path",
                          options->type);
    if (options->targets.rank >= RB_MAX_RANK)
        return rb_why_set(why, RB_EINVAL, "the targets have too many axes");
    type = batched(graph, &options->targets);
    if (!graph->targets) {
        graph->targets = rb_graph_value(graph, RB_VALUE_INPUT, "targets", &type, NULL);
        return 0;
    }
    if (rb_tensor_same(&graph->targets->type, &type))
        return 0;
    return rb_why_set(why, RB_EINVAL, "the model's input '%s' is %s, and the data's targets are %s",
                      graph->targets->name, rb_tensor_text(&graph->targets->type, want),
                      rb_tensor_text(&type, have));
}

/* Is `targets` the shape of `logits` without the axis? */
static bool lacks_axis(const struct rb_tensor_type *logits, const struct rb_tensor_type *targets,
                       int axis)
{
    if (axis < 0 || axis >= logits->rank || targets->rank != logits->rank - 1)
        return false;
    for (int i = 0; i < targets->rank; i++)
        if (targets->dim[i] != logits->dim[i < axis ? i : i + 1])
            return false;
    return true;
}

static const char *soft_labels(const struct rb_tensor_type *logits,
                               const struct rb_tensor_type *targets)
{
    return targets->dtype == RB_F32 && rb_tensor_same(logits, targets)
               ? "; for probabilities of classes export a model that makes its own loss, and say "
                 "spec.loss.type: graph"
               : "";
}

/* Refuses shapes that do not go together, without the first axis, which is not the user's
 * choice. */
static int refuse_shapes(const struct rb_graph *graph, const char *type,
                         const struct rb_tensor_type *y, const char *wanted, const char *more,
                         struct rb_why *why)
{
    char a[RB_TENSOR_TEXT], b[RB_TENSOR_TEXT];

    return rb_why_set(why, RB_EINVAL,
                      "%s: in a microbatch of %" PRId64
                      " the model's output is %s and the targets are %s; %s%s",
                      type, graph->batch, rb_tensor_text(y, a),
                      rb_tensor_text(&graph->targets->type, b), wanted, more);
}

/* Where both axes fit, sequences have their classes last, and all other outputs on axis 1. */
static int find_class_axis(const struct rb_graph *graph, const struct rb_tensor_type *logits,
                           bool sequences, int64_t *ret_axis, struct rb_why *why)
{
    const struct rb_tensor_type *targets = &graph->targets->type;
    int last = logits->rank - 1;

    if (lacks_axis(logits, targets, sequences ? last : 1))
        *ret_axis = sequences ? last : 1;
    else if (lacks_axis(logits, targets, sequences ? 1 : last))
        *ret_axis = sequences ? 1 : last;
    else
        return refuse_shapes(graph, "cross_entropy", logits,
                             "the targets must have the output's shape without its last axis (or "
                             "its axis 1), that of the classes",
                             soft_labels(logits, targets), why);
    return 0;
}

static void take_outputs(struct rb_graph *graph, const struct rb_node *node)
{
    graph->loss = node->out[0];
    graph->count = node->out[1];
    graph->correct = node->n_out > 2 ? node->out[2] : NULL;
}

static int attach_cross_entropy(struct rb_graph *graph, const struct rb_loss_options *options,
                                struct rb_value *y, struct rb_why *why)
{
    float smoothing = (float)options->label_smoothing;
    int64_t axis;
    struct rb_node *node;
    int err = find_class_axis(graph, &y->type, options->sequences, &axis, why);

    if (!err) {
        struct rb_graph_attribute attributes[] = {
            rb_attr_ints("axis", &axis, 1), rb_attr_ints("ignoreIndex", &options->ignore_index, 1),
            rb_attr_float("labelSmoothing", &smoothing)};

        err = rb_graph_node(graph, RB_OP_CROSS_ENTROPY, "loss", 2,
                            (struct rb_value *[]){y, graph->targets}, 3, attributes, 0xf, NULL,
                            &node, why);
    }
    if (!err)
        take_outputs(graph, node);
    return err;
}

/* mse and bce_with_logits: one target an element of the output, as F32. */
static int attach_elementwise(struct rb_graph *graph, const char *type, enum rb_op op,
                              unsigned want, struct rb_value *y, struct rb_why *why)
{
    struct rb_value *targets = graph->targets;
    struct rb_tensor_type shape = targets->type;
    struct rb_node *node;
    int err = 0;

    shape.dtype = RB_F32;
    if (!rb_shapes_same_but_ones(&y->type, &shape))
        return refuse_shapes(graph, type, &y->type,
                             "it needs a target for each element of the output", "", why);
    if (targets->type.dtype != RB_F32) {
        err = rb_graph_node(graph, RB_OP_CAST, "loss.targets", 1, &targets, 0, NULL, 1, &shape,
                            &node, why);
        targets = err ? NULL : node->out[0];
    }
    if (!err && !rb_tensor_same_shape(&y->type, &shape)) {
        err = rb_graph_node(graph, RB_OP_RESHAPE, "loss.output", 1, &y, 0, NULL, 1, &shape, &node,
                            why);
        y = err ? NULL : node->out[0];
    }
    if (!err)
        err = rb_graph_node(graph, op, "loss", 2, (struct rb_value *[]){y, targets}, 0, NULL, want,
                            NULL, &node, why);
    if (!err)
        take_outputs(graph, node);
    return err;
}

/* A model that makes its own loss takes the targets as its second input, or as the first of the
 * others that the data do not have by its name. */
static void find_targets(struct rb_graph *graph)
{
    for (int i = 0; i < graph->n_values && !graph->targets; i++)
        if (graph->values[i]->role == RB_VALUE_INPUT && graph->values[i] != graph->features &&
            !graph->values[i]->named && rb_graph_reads(graph, graph->values[i]))
            graph->targets = graph->values[i];
}

static int attach_graph(struct rb_graph *graph, struct rb_value *y, struct rb_why *why)
{
    struct rb_graph_attribute samples = rb_attr_ints("samples", &graph->batch, 1);
    char text[RB_TENSOR_TEXT];
    struct rb_node *node;
    int err;

    graph->own_loss = rb_own_loss_of(graph, y);
    graph->own_loss_of_all = rb_own_loss_of_all(graph, y);
    if (graph->own_loss == RB_OWN_LOSS_NONE)
        return rb_why_set(why, RB_EINVAL,
                          "loss 'graph': the model's first output must be the loss, one float32; "
                          "'%s' is %s",
                          y->name, rb_tensor_text(&y->type, text));
    err = rb_graph_node(graph, RB_OP_GRAPH_LOSS, "loss", 1, &y, 1, &samples, 3, NULL, &node, why);
    if (!err)
        take_outputs(graph, node);
    return err;
}

static int check_output(const struct rb_value *y, struct rb_why *why)
{
    enum rb_dtype dtype = y->type.dtype;
    bool real = dtype == RB_F16 || dtype == RB_BF16 || dtype == RB_F64;

    if (dtype == RB_F32)
        return 0;
    return rb_why_set(why, RB_EUNSUPPORTED, "the model's first output, '%s', is %s, and %s",
                      y->name, rb_dtype_text(dtype),
                      real ? "only float32 models are trained: model.float() before the export"
                           : "a loss is one of float32");
}

static int attach_named(struct rb_graph *graph, const struct rb_loss_options *options,
                        struct rb_value *y, struct rb_why *why)
{
    const char *type = options->type;

    if (!strcmp(type, "cross_entropy"))
        return attach_cross_entropy(graph, options, y, why);
    if (!strcmp(type, "mse"))
        return attach_elementwise(graph, type, RB_OP_MSE, 3, y, why);
    if (!strcmp(type, "bce_with_logits"))
        return attach_elementwise(graph, type, RB_OP_BCE_LOGITS, 7, y, why);
    return rb_why_set(why, RB_EINVAL,
                      "loss type '%s' is not known: cross_entropy, mse, bce_with_logits or graph",
                      type);
}

int rb_loss_attach(struct rb_graph *graph, const struct rb_loss_options *options,
                   struct rb_why *why)
{
    const char *type = options->type;
    struct rb_value *y;
    int err;

    if (graph->n_outputs < 1)
        return rb_why_set(why, RB_EINVAL, "the model has no output to train on");
    y = graph->outputs[0];
    if (!strcmp(type, "graph")) {
        find_targets(graph);
        err = graph->targets ? make_targets(graph, options, why) : 0;
        return err ? err : attach_graph(graph, y, why);
    }
    err = check_output(y, why);
    if (!err)
        err = make_targets(graph, options, why);
    if (!err)
        err = attach_named(graph, options, y, why);
    if (err && y->type.rank == 0)
        return rb_why_set(why, RB_EINVAL,
                          "%s: the model's first output, '%s', is one number: where that is its "
                          "loss, say spec.loss.type: graph",
                          type, y->name);
    return err;
}
