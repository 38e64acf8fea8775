/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in files of their own. */
#include "graph/onnx/model.h"
#include "graph/onnx/wire_scan.h"

#include <fcntl.h>
#include <stdlib.h>

enum { DEPTH = 8, MOST = 1 << 30 };

static int read_tensor(const Onnx__TensorProto *tensor, struct rb_arena *arena,
                       struct rb_onnx_sample *ret_sample, struct rb_why *why)
{
    const struct rb_onnx nowhere = {0};
    struct rb_onnx_sample sample;
    int err;

    if (!tensor->has_data_type)
        return rb_why_set(why, RB_EUNSUPPORTED, "it is no tensor");
    err = rb_onnx_tensor(&nowhere, tensor, arena, &sample.type, &sample.data, why);
    if (err)
        return err;
    /* The contents may lie in the message, which is freed. */
    sample.data =
        rb_arena_copy(arena, sample.data,
                      (size_t)rb_tensor_elements(&sample.type) * rb_dtype_size(sample.type.dtype));
    *ret_sample = sample;
    return 0;
}

int rb_onnx_sample_read(const char *path, struct rb_arena *arena, struct rb_onnx_sample *ret_sample,
                        struct rb_why *why)
{
    struct rb_capped_alloc capped;
    Onnx__TensorProto *tensor = NULL;
    void *bytes = NULL;
    size_t size = 0;
    int err = rb_onnx_read(AT_FDCWD, path, false, 0, SIZE_MAX, MOST, &bytes, &size, why);

    if (err)
        return err;
    err = rb_wire_scan(&onnx__tensor_proto__descriptor, bytes, size, DEPTH, why);
    rb_capped_alloc_init(&capped, (1 << 20) + 4 * (uint64_t)size);
    if (!err)
        tensor = onnx__tensor_proto__unpack(&capped.protobuf, size, bytes);
    if (!err && !tensor)
        err = rb_why_set(why, RB_EUNSUPPORTED, "it is no tensor");
    if (!err)
        err = read_tensor(tensor, arena, ret_sample, why);
    if (tensor)
        onnx__tensor_proto__free_unpacked(tensor, &capped.protobuf);
    free(bytes);
    return err ? rb_why_add(why, err, "%s", path) : 0;
}

int rb_onnx_inputs(const struct rb_onnx *model)
{
    return model->n_inputs;
}

static enum rb_dtype declared(const Onnx__ValueInfoProto *value)
{
    if (!value->type || value->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE ||
        !value->type->tensor_type->has_elem_type)
        return RB_NONE;
    return (enum rb_dtype)value->type->tensor_type->elem_type;
}

enum rb_dtype rb_onnx_declared_input(const struct rb_onnx *model, int i)
{
    return declared(model->inputs[i]);
}

int rb_onnx_outputs(const struct rb_onnx *model)
{
    return (int)model->proto->graph->n_output;
}

enum rb_dtype rb_onnx_declared_output(const struct rb_onnx *model, int i)
{
    return declared(model->proto->graph->output[i]);
}

const char *rb_onnx_input_name(const struct rb_onnx *model, int i)
{
    return model->inputs[i]->name;
}

const char *rb_onnx_output_name(const struct rb_onnx *model, int i)
{
    return model->proto->graph->output[i]->name;
}

const char *rb_onnx_node_op(const struct rb_onnx *model, int i)
{
    const char *op = model->proto->graph->node[i]->op_type;

    return op ? op : "";
}
