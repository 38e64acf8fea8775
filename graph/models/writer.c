/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/models/writer.h"

#include "base/buffer.h"
#include "graph/models/random.h"

#include <stdarg.h>
#include <string.h>

enum { OPSET = 17, IR_VERSION = 8 };

/* Append to one of protobuf-c's lists, which have room for the next power of two. */
static void *grow(struct rb_arena *arena, void *list, size_t *n, size_t width)
{
    if (*n == 0 || (*n & (*n - 1)) == 0) {
        void *wider = rb_arena_alloc(arena, width * (*n ? 2 * *n : 1));

        if (*n)
            memcpy(wider, list, width * *n);
        list = wider;
    }
    ++*n;
    return list;
}

#define PUSH(writer, list, n, item)                                                                \
    do {                                                                                           \
        (list) = grow(&(writer)->arena, (list), &(n), sizeof *(list));                             \
        (list)[(n)-1] = (item);                                                                    \
    } while (0)

void rb_writer_init(struct rb_writer *writer, const char *graph_name, uint64_t seed)
{
    *writer = (struct rb_writer){.seed = seed};
    onnx__graph_proto__init(&writer->graph);
    writer->graph.name = rb_arena_string(&writer->arena, graph_name);
}

void rb_writer_done(struct rb_writer *writer)
{
    rb_arena_done(&writer->arena);
}

const char *rb_writer_weight(struct rb_writer *writer, const char *name, int rank,
                             const int64_t *dim, enum rb_init init, double scale)
{
    Onnx__TensorProto *tensor = RB_ARENA_NEW(&writer->arena, Onnx__TensorProto, 1);
    size_t count = 1;
    float *data;

    for (int i = 0; i < rank; i++)
        count *= (size_t)dim[i];
    onnx__tensor_proto__init(tensor);
    tensor->name = rb_arena_string(&writer->arena, name);
    tensor->has_data_type = 1;
    tensor->data_type = RB_F32;
    tensor->n_dims = (size_t)rank;
    tensor->dims = rb_arena_copy(&writer->arena, dim, sizeof *dim * (size_t)rank);
    data = rb_arena_alloc(&writer->arena, sizeof *data * count);
    if (init == RB_INIT_ONE)
        for (size_t i = 0; i < count; i++)
            data[i] = 1;
    if (init == RB_INIT_UNIFORM)
        rb_models_uniform(writer->seed, writer->graph.n_initializer, scale, data, count);
    if (init == RB_INIT_NORMAL)
        rb_models_normal(writer->seed, writer->graph.n_initializer, scale, data, count);
    tensor->has_raw_data = 1;
    tensor->raw_data.len = sizeof *data * count;
    tensor->raw_data.data = (uint8_t *)data;
    writer->bytes += tensor->raw_data.len;
    PUSH(writer, writer->graph.initializer, writer->graph.n_initializer, tensor);
    return tensor->name;
}

static Onnx__ValueInfoProto *describe(struct rb_writer *writer, const char *name,
                                      enum rb_dtype dtype, int rank, const int64_t *dim)
{
    Onnx__ValueInfoProto *info = RB_ARENA_NEW(&writer->arena, Onnx__ValueInfoProto, 1);
    Onnx__TypeProto *type = RB_ARENA_NEW(&writer->arena, Onnx__TypeProto, 1);
    Onnx__TypeProto__Tensor *tensor = RB_ARENA_NEW(&writer->arena, Onnx__TypeProto__Tensor, 1);
    Onnx__TensorShapeProto *shape = RB_ARENA_NEW(&writer->arena, Onnx__TensorShapeProto, 1);

    onnx__value_info_proto__init(info);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    onnx__tensor_shape_proto__init(shape);
    info->name = rb_arena_string(&writer->arena, name);
    info->type = type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = dtype;
    tensor->shape = shape;
    for (int i = 0; i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *axis =
            RB_ARENA_NEW(&writer->arena, Onnx__TensorShapeProto__Dimension, 1);

        onnx__tensor_shape_proto__dimension__init(axis);
        if (dim[i] < 0) {
            axis->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            axis->dim_param = rb_arena_string(&writer->arena, "batch");
        } else {
            axis->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            axis->dim_value = dim[i];
        }
        PUSH(writer, shape->dim, shape->n_dim, axis);
    }
    return info;
}

void rb_writer_input(struct rb_writer *writer, const char *name, enum rb_dtype dtype, int rank,
                     const int64_t *dim)
{
    PUSH(writer, writer->graph.input, writer->graph.n_input,
         describe(writer, name, dtype, rank, dim));
}

void rb_writer_output(struct rb_writer *writer, const char *name, int rank, const int64_t *dim)
{
    PUSH(writer, writer->graph.output, writer->graph.n_output,
         describe(writer, name, RB_F32, rank, dim));
}

const char *rb_writer_node(struct rb_writer *writer, const char *op, const char *output, ...)
{
    Onnx__NodeProto *node = RB_ARENA_NEW(&writer->arena, Onnx__NodeProto, 1);
    const char *input;
    va_list inputs;

    onnx__node_proto__init(node);
    node->op_type = rb_arena_string(&writer->arena, op);
    node->name = rb_arena_string(&writer->arena, output);
    PUSH(writer, node->output, node->n_output, node->name);
    va_start(inputs, output);
    while ((input = va_arg(inputs, const char *)))
        PUSH(writer, node->input, node->n_input, rb_arena_string(&writer->arena, input));
    va_end(inputs);
    PUSH(writer, writer->graph.node, writer->graph.n_node, node);
    return node->name;
}

static Onnx__NodeProto *newest(struct rb_writer *writer)
{
    return writer->graph.node[writer->graph.n_node - 1];
}

void rb_writer_extra_output(struct rb_writer *writer, const char *name)
{
    Onnx__NodeProto *node = newest(writer);

    PUSH(writer, node->output, node->n_output, rb_arena_string(&writer->arena, name));
}

static Onnx__AttributeProto *add_attribute(struct rb_writer *writer, const char *key,
                                           Onnx__AttributeProto__AttributeType type)
{
    Onnx__AttributeProto *attribute = RB_ARENA_NEW(&writer->arena, Onnx__AttributeProto, 1);
    Onnx__NodeProto *node = newest(writer);

    onnx__attribute_proto__init(attribute);
    attribute->name = rb_arena_string(&writer->arena, key);
    attribute->has_type = 1;
    attribute->type = type;
    PUSH(writer, node->attribute, node->n_attribute, attribute);
    return attribute;
}

void rb_writer_int(struct rb_writer *writer, const char *key, int64_t value)
{
    Onnx__AttributeProto *attribute =
        add_attribute(writer, key, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT);

    attribute->has_i = 1;
    attribute->i = value;
}

void rb_writer_float(struct rb_writer *writer, const char *key, float value)
{
    Onnx__AttributeProto *attribute =
        add_attribute(writer, key, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT);

    attribute->has_f = 1;
    attribute->f = value;
}

void rb_writer_ints(struct rb_writer *writer, const char *key, int n, const int64_t *values)
{
    Onnx__AttributeProto *attribute =
        add_attribute(writer, key, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS);

    attribute->n_ints = (size_t)n;
    attribute->ints = rb_arena_copy(&writer->arena, values, sizeof *values * (size_t)n);
}

static const char *constant(struct rb_writer *writer, const char *name, enum rb_dtype dtype,
                            int rank, int64_t n, const void *data, size_t size)
{
    const char *output = rb_writer_node(writer, "Constant", name, NULL);
    Onnx__AttributeProto *attribute =
        add_attribute(writer, "value", ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR);
    Onnx__TensorProto *tensor = RB_ARENA_NEW(&writer->arena, Onnx__TensorProto, 1);

    onnx__tensor_proto__init(tensor);
    tensor->has_data_type = 1;
    tensor->data_type = dtype;
    tensor->n_dims = (size_t)rank;
    tensor->dims = rb_arena_copy(&writer->arena, &n, sizeof n);
    tensor->has_raw_data = 1;
    tensor->raw_data.len = size;
    tensor->raw_data.data = rb_arena_copy(&writer->arena, data, size);
    attribute->t = tensor;
    return output;
}

const char *rb_writer_constant_ints(struct rb_writer *writer, const char *name, int n,
                                    const int64_t *values)
{
    return constant(writer, name, RB_I64, 1, n, values, sizeof *values * (size_t)n);
}

const char *rb_writer_constant_float(struct rb_writer *writer, const char *name, float value)
{
    return constant(writer, name, RB_F32, 0, 1, &value, sizeof value);
}

static const char *constant_true(struct rb_writer *writer, const char *name)
{
    return constant(writer, name, RB_BOOL, 0, 1, &(uint8_t){1}, 1);
}

const char *rb_writer_dropout(struct rb_writer *writer, const char *output, const char *x,
                              double ratio)
{
    const char *mode, *number;

    if (ratio == 0)
        return x;
    number =
        rb_writer_constant_float(writer, RB_WRITER_NAME(writer, "%s.ratio", output), (float)ratio);
    mode = constant_true(writer, RB_WRITER_NAME(writer, "%s.training", output));
    return rb_writer_node(writer, "Dropout", output, x, number, mode, NULL);
}

struct sink {
    ProtobufCBuffer protobuf;
    struct rb_buffer *out;
};

static void append(ProtobufCBuffer *buffer, size_t size, const uint8_t *bytes)
{
    rb_buffer_add(((struct sink *)buffer)->out, bytes, size);
}

int rb_writer_finish(struct rb_writer *writer, struct rb_buffer *ret_onnx, struct rb_why *why)
{
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto opset = ONNX__OPERATOR_SET_ID_PROTO__INIT;
    Onnx__OperatorSetIdProto *opsets[1] = {&opset};
    struct sink sink = {.protobuf = {.append = append}, .out = ret_onnx};
    size_t size;

    opset.domain = (char *)"";
    opset.has_version = 1;
    opset.version = OPSET;
    model.has_ir_version = 1;
    model.ir_version = IR_VERSION;
    model.producer_name = (char *)"rubato";
    model.n_opset_import = 1;
    model.opset_import = opsets;
    model.graph = &writer->graph;
    size = onnx__model_proto__get_packed_size(&model);
    if (size > INT32_MAX)
        return rb_why_set(why, RB_ELIMIT,
                          "the model would have %zu bytes; one ONNX file ends at 2 GiB", size);
    rb_buffer_reserve(ret_onnx, size);
    onnx__model_proto__pack_to_buffer(&model, &sink.protobuf);
    return 0;
}
