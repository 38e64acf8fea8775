/* SPDX-License-Identifier: Apache-2.0 */
/* The model's inputs, and the lengths of their symbolic axes: by the batch, a sample or the job. */
#include "graph/import/import.h"

#include "graph/shapes/shapes.h"

#include <inttypes.h>

/* The length of an axis of input i in a sample of it; 0: there is no sample, or it has another
 * shape.  A sample may leave out axes of 1 in front. */
static int64_t sampled(const struct rb_import *import, int i, const struct rb_tensor_type *type,
                       int axis)
{
    const struct rb_import_options *options = import->options;
    const struct rb_tensor_type *sample = i < options->n_samples ? &options->samples[i] : NULL;
    int behind = sample ? type->rank - sample->rank : 0;

    if (!sample || sample->dtype == RB_NONE || behind < 1 || axis < behind)
        return 0;
    for (int k = 1; k < behind; k++)
        if (type->dim[k] != 1)
            return 0;
    return sample->dim[axis - behind];
}

/* The size to which a symbolic axis of input i is bound; the same name means the same size
 * everywhere. */
static int bind_axis(struct rb_import *import, int i, const struct rb_tensor_type *type, int axis,
                     int64_t *dim)
{
    const struct rb_import_options *options = import->options;
    const char *symbol = rb_onnx_symbol(import->model->inputs[i], axis);
    const int64_t *known = symbol[0] ? rb_names_get(&import->symbols, symbol) : NULL;
    char room[80];

    if (known)
        *dim = *known;
    else if (axis == 0 && options->batch > 0)
        *dim = options->batch;
    else if (axis > 0 && sampled(import, i, type, axis) > 0)
        *dim = sampled(import, i, type, axis);
    else if (axis == 1 && options->seq_len > 0)
        *dim = options->seq_len;
    else if (axis > 0 && options->free_size > 0)
        *dim = options->free_size;
    else
        return RB_IMPORT_NO(import, "axis %d is symbolic (%s) and nothing says how long it is%s",
                            axis, symbol[0] ? rb_onnx_quote(symbol, room) : "no name",
                            axis == 1 ? ": set the sequence length" : "");
    if (symbol[0] && !known)
        rb_names_add(&import->symbols, symbol,
                     rb_arena_copy(&import->graph->arena, dim, sizeof *dim));
    return 0;
}

static int check_batch(const struct rb_import *import, const struct rb_tensor_type *type)
{
    int64_t batch = import->options->batch;

    if (batch > 0 && type->rank < 1)
        return RB_IMPORT_BAD(import, "it has no axis for the batch");
    if (batch > 0 && type->dim[0] != batch)
        return RB_IMPORT_BAD(import,
                             "the model was exported for a batch of %" PRId64 ", not of %" PRId64
                             ": export it with a symbolic first axis "
                             "(dynamic_axes={'input': {0: 'batch'}})",
                             type->dim[0], batch);
    return 0;
}

/* The value keeps its contents, for rb_import_ask. */
static int add_given(struct rb_import *import, int i)
{
    const struct rb_onnx_sample *given = &import->options->given[i];
    const Onnx__ValueInfoProto *input = import->model->inputs[i];
    bool real = given->type.dtype == RB_F32 || given->type.dtype == RB_F64 ||
                given->type.dtype == RB_F16 || given->type.dtype == RB_BF16;
    struct rb_value *value =
        rb_graph_value(import->graph, RB_VALUE_INPUT, input->name, &given->type, given->data);

    if (!real && import->options->know_integers)
        value->role = RB_VALUE_CONST;
    if (i == 0)
        import->graph->features = value;
    if (!rb_names_add(&import->values, input->name, value))
        return RB_IMPORT_BAD(import, "there are two by that name");
    return 0;
}

/* Data are float32 or int64: an input that the model declares with another type is cast from them,
 * and the result has the input's name. */
static int add_declared(struct rb_import *import, int at, struct rb_tensor_type type)
{
    const Onnx__ValueInfoProto *input = import->model->inputs[at];
    const struct rb_import_options *options = import->options;
    enum rb_dtype declared = type.dtype;
    struct rb_value *value;
    int err = 0;

    if (options->from_data && (declared == RB_I32 || declared == RB_U8 || declared == RB_BOOL))
        type.dtype = RB_I64;
    value = rb_graph_value(import->graph, RB_VALUE_INPUT, input->name, &type, NULL);
    value->declared = declared;
    value->named = at < options->n_samples && options->named && options->named[at];
    if (at == 0)
        import->graph->features = value;
    if (declared != type.dtype) {
        import->name = input->name;
        err = rb_import_cast(import, value, declared, &value);
    }
    if (!err && !rb_names_add(&import->values, input->name, value))
        return RB_IMPORT_BAD(import, "there are two by that name");
    return err;
}

static int add_input(struct rb_import *import, int at)
{
    const Onnx__ValueInfoProto *input = import->model->inputs[at];
    struct rb_tensor_type type;
    int64_t batch = import->options->batch;
    int err = rb_onnx_input_type(input, &type, import->why);

    for (int i = 0; !err && i < type.rank; i++)
        if (type.dim[i] < 0)
            err = bind_axis(import, at, &type, i, &type.dim[i]);
    if (!err)
        err = rb_shapes_check(&type, import->why);
    if (!err && at == 0)
        err = check_batch(import, &type);
    if (!err && at == 0)
        import->graph->batch = batch > 0 ? batch : type.rank ? type.dim[0] : 1;
    return err ? err : add_declared(import, at, type);
}

int rb_import_inputs(struct rb_import *import)
{
    char room[80];

    if (!import->model->n_inputs && !import->options->given)
        return RB_IMPORT_BAD(import, "the model has no input");
    import->graph->batch = 1;
    for (int i = 0; i < import->model->n_inputs; i++) {
        int err = import->options->given ? add_given(import, i) : add_input(import, i);

        if (err)
            return rb_why_add(import->why, err, "input '%s'",
                              rb_onnx_quote(import->model->inputs[i]->name, room));
    }
    return 0;
}
