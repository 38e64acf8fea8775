/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/check.h"

#include "base/buffer.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <string.h>

/* The type that the model declares for the input, whose integers and truth values come as int64. */
static enum rb_dtype declared(const struct rb_value *input)
{
    return input->declared != RB_NONE ? input->declared : input->type.dtype;
}

/* The type of one sample of the input: its own without the batch axis. */
static struct rb_tensor_type sample_of(const struct rb_value *input)
{
    struct rb_tensor_type sample = {.dtype = declared(input), .rank = input->type.rank - 1};

    for (int i = 0; i < sample.rank; i++)
        sample.dim[i] = input->type.dim[i + 1];
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

/* The table in which an input is looked up first, or NULL. */
static const struct rb_value *find_table(const struct rb_graph *graph, const struct rb_value *input)
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
        if (index == input)
            return node->in[0];
    }
    return NULL;
}

static int check_type(const struct rb_value *input, struct rb_why *why)
{
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
        return rb_why_set(
            why, RB_EUNSUPPORTED,
            "the model's input '%s' is %s, and data are taken as float32, int64, int32, "
            "uint8 or bool: export the model with an input of that",
            input->name, rb_dtype_text(dtype));
    return 0;
}

int rb_check_types(const struct rb_graph *graph, struct rb_why *why)
{
    int err = check_type(graph->features, why);

    for (int i = 0; !err && i < graph->n_values; i++) {
        const struct rb_value *input = graph->values[i];

        if (!input->named || !rb_graph_reads(graph, input))
            continue;
        err = check_type(input, why);
        if (!err && input->type.dim[0] != graph->batch)
            err = rb_why_set(why, RB_EUNSUPPORTED,
                             "the first axis of the model's input '%s' is %" PRId64
                             " long for a batch of %" PRId64
                             ": it must be the batch (dynamic_axes={'%s': {0: 'batch'}}); what is "
                             "the same for all samples is a buffer of the module",
                             input->name, input->type.dim[0], graph->batch, input->name);
    }
    return err;
}

/* Is each of an input's numbers one of its type, and a row of the table that it indexes?  Text is
 * not read for this: any byte may come. */
static int check_tokens(const struct rb_graph *graph, const struct rb_value *input, bool text,
                        int64_t least, int64_t most, struct rb_why *why)
{
    const struct rb_value *table = find_table(graph, input);
    int64_t rows = table ? table->type.dim[0] : 0, low = INT64_MIN, high = INT64_MAX;

    if (declared(input) == RB_I32) {
        low = INT32_MIN;
        high = INT32_MAX;
    } else if (declared(input) == RB_U8) {
        low = 0;
        high = UINT8_MAX;
    }
    if (least < low || most > high)
        return rb_why_set(why, RB_EINVAL,
                          "%" PRId64 " is in the data, and the model's input '%s' is %s",
                          most > high ? most : least, input->name, rb_dtype_text(declared(input)));
    if (!table)
        return 0;
    if (most >= rows && text)
        return rb_why_set(why, RB_EINVAL,
                          "text is bytes, 0 to 255, but the embedding '%s' has %" PRId64 " rows",
                          table->name, rows);
    if (most >= rows)
        return rb_why_set(why, RB_EINVAL,
                          "token %" PRId64 " is in the data, but the embedding '%s' has %" PRId64
                          " rows",
                          most, table->name, rows);
    if (least < 0)
        return rb_why_set(why, RB_EINVAL,
                          "token %" PRId64 " is in the data, and the rows of the embedding '%s' "
                          "are 0 to %" PRId64,
                          least, table->name, rows - 1);
    return 0;
}

/* Checks a sample of the data against the type of one sample of an input. */
static int check_sample(const struct rb_value *input, const struct rb_tensor_type *sample,
                        struct rb_why *why)
{
    char have[RB_TENSOR_TEXT], want[RB_TENSOR_TEXT];
    struct rb_tensor_type wanted = sample_of(input);

    if (!fits(&wanted, sample))
        return rb_why_set(why, RB_EINVAL,
                          "a sample is %s and the model's input '%s' takes %s a sample",
                          rb_tensor_text(sample, have), input->name, rb_tensor_text(&wanted, want));
    if (input->type.dtype != sample->dtype)
        return rb_why_set(why, RB_EINVAL,
                          "the %s are %s and the model's input '%s' is %s: convert the file "
                          "(NumPy's astype), or export the model with another input type; integers "
                          "are numbers of tokens, but bytes (uint8) are taken as floats too",
                          input->named ? "data" : "features", rb_dtype_text(sample->dtype),
                          input->name, rb_dtype_text(declared(input)));
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
    const struct rb_value *input = graph->features;
    int err = rb_check_types(graph, why);

    if (!err)
        err = check_sample(input, &info->features, why);
    return err ? err
               : check_tokens(graph, input, !strcmp(info->format, "text"), info->least_feature,
                              info->largest_feature, why);
}

static int check_named(const struct rb_graph *graph, const struct rb_value *input,
                       const struct rb_source_info *info, struct rb_why *why)
{
    const struct rb_source_input *data = rb_source_find_input(info, input->name);
    int err;

    if (!data)
        return rb_why_set(why, RB_EINVAL,
                          "the model's input '%s' has no data here: say inputs: "
                          "[{name: %s, path: FILE}], as for training",
                          input->name, input->name);
    err = check_sample(input, &data->type, why);
    return err || !data->scanned
               ? err
               : check_tokens(graph, input, false, data->extremes.least, data->extremes.most, why);
}

int rb_check_named(const struct rb_graph *graph, const struct rb_source_info *info,
                   struct rb_why *why)
{
    int err = 0;

    for (int i = 0; !err && i < graph->n_values; i++)
        if (graph->values[i]->named)
            err = check_named(graph, graph->values[i], info, why);
    return err;
}

int rb_check_inputs(const struct rb_graph *graph, struct rb_why *why)
{
    for (int i = 0; i < graph->n_values; i++)
        if (graph->values[i]->role == RB_VALUE_INPUT && graph->values[i] != graph->features &&
            graph->values[i] != graph->targets && !graph->values[i]->named &&
            rb_graph_reads(graph, graph->values[i]))
            return rb_why_set(why, RB_EINVAL,
                              "the model has a further input '%s' that nothing fills: say "
                              "inputs: [{name: %s, path: FILE}] beside path, a file with a row for "
                              "each sample; or export a module that makes it of the first input",
                              graph->values[i]->name, graph->values[i]->name);
    return 0;
}
