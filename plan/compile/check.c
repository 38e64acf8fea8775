/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/check.h"

#include "base/buffer.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <string.h>

/* What the input takes of one sample: its type without the batch axis. */
static struct rb_tensor_type sample_of(const struct rb_tensor_type *input)
{
    struct rb_tensor_type sample = {.dtype = input->dtype, .rank = input->rank - 1};

    for (int i = 0; i < sample.rank; i++)
        sample.dim[i] = input->dim[i + 1];
    return sample;
}

/* Row-major data may be looked at flattened, but not with axes in another order. */
static bool fits(const struct rb_tensor_type *wanted, const struct rb_tensor_type *sample)
{
    if (rb_shapes_same_but_ones(wanted, sample))
        return true;
    return (wanted->rank <= 1 || sample->rank <= 1) &&
           rb_tensor_elements(wanted) == rb_tensor_elements(sample);
}

/* The table in which the features are looked up first, or NULL. */
static const struct rb_value *find_table(const struct rb_graph *graph)
{
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct rb_node *node = graph->nodes[i];
        const struct rb_value *index;

        if (node->op != RB_OP_GATHER || rb_node_int(node, "axis", 0) != 0 ||
            node->in[0]->role != RB_VALUE_WEIGHT)
            continue;
        index = node->in[1];
        while (index->role == RB_VALUE_TEMP && index->maker &&
               (index->maker->op == RB_OP_RESHAPE || index->maker->op == RB_OP_CAST))
            index = index->maker->in[0];
        if (index == graph->features)
            return node->in[0];
    }
    return NULL;
}

int rb_check_type(const struct rb_graph *graph, struct rb_why *why)
{
    const struct rb_value *input = graph->features;
    enum rb_dtype dtype = input->type.dtype;

    if (input->type.rank < 1)
        return rb_why_set(why, RB_EINVAL, "the model's input '%s' has no axis for the batch",
                          input->name);
    if (dtype == RB_F16 || dtype == RB_BF16 || dtype == RB_F64)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "the model's input '%s' is %s, and only float32 models are trained: "
                          "model.float() before the export",
                          input->name, rb_dtype_text(dtype));
    if (dtype != RB_F32 && dtype != RB_I64)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "the model's input '%s' is %s, and data are float32 or int64: export the "
                          "model with an input of that",
                          input->name, rb_dtype_text(dtype));
    return 0;
}

/* Text is not read for this: any byte may come. */
static int check_tokens(const struct rb_source_info *info, const struct rb_value *table,
                        struct rb_why *why)
{
    int64_t rows = table->type.dim[0];

    if (info->largest_feature >= rows && !strcmp(info->format, "text"))
        return rb_why_set(why, RB_EINVAL,
                          "text is bytes, 0 to 255, but the embedding '%s' has %" PRId64 " rows",
                          table->name, rows);
    if (info->largest_feature >= rows)
        return rb_why_set(why, RB_EINVAL,
                          "token %" PRId64 " is in the data, but the embedding '%s' has %" PRId64
                          " rows",
                          info->largest_feature, table->name, rows);
    if (info->least_feature < 0)
        return rb_why_set(why, RB_EINVAL,
                          "token %" PRId64 " is in the data, and the rows of the embedding '%s' "
                          "are 0 to %" PRId64,
                          info->least_feature, table->name, rows - 1);
    return 0;
}

int rb_check_declared(const struct rb_onnx *onnx, const struct rb_tensor_type *sample,
                      struct rb_why *why)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer want = {0};
    char have[RB_TENSOR_TEXT];
    struct rb_tensor_type type;
    bool off = false, free = false;

    if (!rb_onnx_inputs(onnx) || rb_onnx_input_declared(onnx, 0, &type, NULL) ||
        type.rank != sample->rank + 1)
        return 0;
    for (int i = 0; i < sample->rank; i++) {
        off |= type.dim[i + 1] >= 0 && type.dim[i + 1] != sample->dim[i];
        free |= type.dim[i + 1] < 0;
        if (type.dim[i + 1] < 0)
            rb_buffer_format(&want, "%sany", i ? "," : "");
        else
            rb_buffer_format(&want, "%s%" PRId64, i ? "," : "", type.dim[i + 1]);
    }
    return off && free
               ? rb_why_set(why, RB_EINVAL,
                            "a sample is %s and the model's input '%s' takes %s[%s] a sample",
                            rb_tensor_text(sample, have), rb_onnx_input_name(onnx, 0),
                            rb_dtype_text(type.dtype), want.data)
               : 0;
}

int rb_check_features(const struct rb_graph *graph, const struct rb_source_info *info,
                      struct rb_why *why)
{
    const struct rb_value *input = graph->features, *table;
    char have[RB_TENSOR_TEXT], want[RB_TENSOR_TEXT];
    struct rb_tensor_type wanted;
    int err = rb_check_type(graph, why);

    if (err)
        return err;
    wanted = sample_of(&input->type);
    if (!fits(&wanted, &info->features))
        return rb_why_set(
            why, RB_EINVAL, "a sample is %s and the model's input '%s' takes %s a sample",
            rb_tensor_text(&info->features, have), input->name, rb_tensor_text(&wanted, want));
    if (input->type.dtype != info->features.dtype)
        return rb_why_set(why, RB_EINVAL,
                          "the features are %s and the model's input '%s' is %s: convert the file "
                          "(NumPy's astype), or export the model with another input type; integers "
                          "are numbers of tokens, but bytes (uint8) are taken as floats too",
                          rb_dtype_text(info->features.dtype), input->name,
                          rb_dtype_text(input->type.dtype));
    table = find_table(graph);
    return table ? check_tokens(info, table, why) : 0;
}

int rb_check_inputs(const struct rb_graph *graph, struct rb_why *why)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->role == RB_VALUE_INPUT && graph->values[i] != graph->features &&
            graph->values[i] != graph->targets)
            return rb_why_set(
                why, RB_EUNSUPPORTED,
                "the model has a further input '%s' that the data cannot fill: they "
                "have features and, for the loss, targets; export a module that takes "
                "one input and makes the others of it: slices of its columns, or a "
                "mask of tokens that are compared with the padding",
                graph->values[i]->name);
    return 0;
}

/* Of a target beyond 0 and 1 this loss has no least value: the weights would grow for ever. */
static int check_probabilities(const struct rb_source_info *info, struct rb_why *why)
{
    const struct rb_extremes *found = &info->extremes;
    double stray = info->stray_target;

    if (info->targets.dtype == RB_I64)
        stray = (double)(found->least < 0 ? found->least : found->most > 1 ? found->most : 0);
    return stray == 0 ? 0
                      : rb_why_set(why, RB_EINVAL,
                                   "target %g is in the data, and bce_with_logits takes "
                                   "probabilities, 0 to 1: convert the file, or say another "
                                   "spec.loss.type",
                                   stray);
}

/* The integers that a loss takes for classes: whose loss it is, and which of them it leaves out. */
struct classes {
    bool own; /* the model's */
    int64_t n;
    bool ignores;
    int64_t ignored;
};

/* Does the model's own loss take its labels from the targets as they are? */
static bool takes_targets(const struct rb_graph *graph)
{
    const struct rb_value *value = graph->own_labels.value;

    while (value && value->maker &&
           (value->maker->op == RB_OP_RESHAPE || value->maker->op == RB_OP_TRANSPOSE ||
            value->maker->op == RB_OP_CAST))
        value = value->maker->in[0];
    return value && value == graph->targets;
}

static bool find_classes(const struct rb_graph *graph, int64_t ignore_index, struct classes *ret)
{
    const struct rb_node *loss = graph->loss->maker;
    const struct rb_own_labels *own = &graph->own_labels;

    if (loss->op == RB_OP_CROSS_ENTROPY) {
        int64_t n = loss->in[0]->type.dim[rb_node_int(loss, "axis", 0)];

        *ret = (struct classes){.n = n, .ignores = true, .ignored = ignore_index};
        return true;
    }
    if (loss->op != RB_OP_GRAPH_LOSS || !takes_targets(graph))
        return false;
    *ret = (struct classes){true, own->classes, own->ignores, own->ignored};
    return true;
}

/* A target that is no class and counts all the same; false: there is none. */
static bool find_stray(const struct rb_extremes *extremes, const struct classes *classes,
                       int64_t *ret_target)
{
    const int64_t ends[] = {extremes->most, extremes->second_most, extremes->least,
                            extremes->second_least};

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if ((ends[i] < 0 || ends[i] >= classes->n) &&
            !(classes->ignores && ends[i] == classes->ignored)) {
            *ret_target = ends[i];
            return true;
        }
    return false;
}

static int refuse_stray(const struct classes *classes, int64_t stray, struct rb_why *why)
{
    if (stray >= 0)
        return rb_why_set(why, RB_EINVAL,
                          "target %" PRId64 " is in the data, but the model's %s has %" PRId64
                          " classes (0 to %" PRId64 ")",
                          stray, classes->own ? "loss" : "output", classes->n, classes->n - 1);
    return rb_why_set(why, RB_EINVAL,
                      "target %" PRId64 " is in the data, and classes are 0 to %" PRId64
                      ": where it is one that does not count, %s%" PRId64,
                      stray, classes->n - 1,
                      classes->own ? "export the model's loss with ignore_index="
                                   : "say spec.loss.ignoreIndex: ",
                      stray);
}

int rb_check_targets(const struct rb_graph *graph, const struct rb_source_info *info,
                     int64_t ignore_index, struct rb_why *why)
{
    int err = rb_check_inputs(graph, why);
    struct classes classes;
    int64_t stray;

    if (err)
        return err;
    if (graph->loss->maker->op == RB_OP_BCE_LOGITS)
        return check_probabilities(info, why);
    if (info->targets.dtype != RB_I64 || !find_classes(graph, ignore_index, &classes))
        return 0;
    if (classes.ignores && info->extremes.least == classes.ignored &&
        info->extremes.most == classes.ignored)
        return rb_why_set(
            why, RB_EINVAL,
            "every target in the data is %" PRId64 ", which %s leaves out: none is left",
            classes.ignored, classes.own ? "the model's loss" : "spec.loss.ignoreIndex");
    return find_stray(&info->extremes, &classes, &stray) ? refuse_stray(&classes, stray, why) : 0;
}
