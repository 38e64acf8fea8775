/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/onnx/onnx.h"

#include "graph/onnx/model.h"
#include "graph/onnx/wire_scan.h"
#include "graph/shapes/shapes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_OPSET = 1,
    LAST_OPSET = 23,
    FIRST_IR = 3,
    LAST_IR = 13,
};

int rb_onnx_check_opset(int64_t opset, struct rb_why *why)
{
    if (opset >= FIRST_OPSET && opset <= LAST_OPSET)
        return 0;
    return rb_why_set(why, RB_EUNSUPPORTED,
                      "the model uses opset %" PRId64 "; %d to %d are supported: export it with "
                      "opset_version=18 (torch 1: 17)",
                      opset, FIRST_OPSET, LAST_OPSET);
}

static int check_opset(struct rb_onnx *model, struct rb_why *why)
{
    const Onnx__ModelProto *proto = model->proto;

    for (size_t i = 0; i < proto->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = proto->opset_import[i];
        bool standard = !set->domain || !set->domain[0] || !strcmp(set->domain, "ai.onnx");

        if (standard && set->has_version)
            model->opset = set->version;
    }
    if (!model->opset)
        return rb_why_set(why, RB_EUNSUPPORTED, "the model uses no operators of ONNX's own domain");
    return rb_onnx_check_opset(model->opset, why);
}

/* Files before IR 4 list every initializer as an input too, and later ones may. */
static int list_inputs(struct rb_onnx *model, struct rb_why *why)
{
    const Onnx__GraphProto *graph = model->proto->graph;
    char room[80];

    if (graph->n_sparse_initializer)
        return rb_why_set(why, RB_EUNSUPPORTED, "sparse initializers are not supported");
    for (size_t i = 0; i < graph->n_initializer; i++) {
        const char *name = graph->initializer[i]->name;

        if (!name || !name[0])
            return rb_why_set(why, RB_EINVAL, "an initializer without a name");
        if (!rb_names_add(&model->initializers, name, graph->initializer[i]))
            return rb_why_set(why, RB_EINVAL, "two initializers by the name '%s'",
                              rb_onnx_quote(name, room));
    }
    model->inputs = rb_alloc(sizeof(*model->inputs) * (graph->n_input + 1));
    for (size_t i = 0; i < graph->n_input; i++) {
        const char *name = graph->input[i]->name;

        if (!name || !name[0])
            return rb_why_set(why, RB_EINVAL, "the graph has an input without a name");
        if (!rb_names_get(&model->initializers, name))
            model->inputs[model->n_inputs++] = graph->input[i];
    }
    return 0;
}

static int check_model(struct rb_onnx *model, struct rb_why *why)
{
    const Onnx__ModelProto *proto = model->proto;
    int err;

    if (!proto->has_ir_version || proto->ir_version < FIRST_IR)
        return rb_why_set(why, RB_EINVAL, "no ONNX model: IR version %" PRId64,
                          proto->has_ir_version ? proto->ir_version : 0);
    if (proto->ir_version > LAST_IR)
        return rb_why_set(why, RB_EUNSUPPORTED,
                          "the file is of ONNX IR version %" PRId64 "; %d to %d are supported: "
                          "export it with opset_version=18, or save it with model.ir_version = %d",
                          proto->ir_version, FIRST_IR, LAST_IR, LAST_IR);
    if (!proto->graph)
        return rb_why_set(why, RB_EINVAL, "the model has no graph");
    err = check_opset(model, why);
    if (!err)
        err = list_inputs(model, why);
    rb_onnx_read_signature(model);
    return err ? err : rb_onnx_list_functions(model, why);
}

/* Does it begin with the length of a JSON header, and the header? */
static bool is_safetensors(const uint8_t *bytes, size_t size)
{
    uint64_t length = 0;

    for (int i = 0; size > 8 && i < 8; i++)
        length |= (uint64_t)bytes[i] << 8 * i;
    return size > 8 && length <= size - 8 && bytes[8] == '{';
}

/* Recognizes files that are often given instead of a model, by their first bytes. */
static int check_kind(const uint8_t *bytes, size_t size, struct rb_why *why)
{
    const char *kind = NULL;

    if (!size)
        return rb_why_set(why, RB_EINVAL, "the file is empty");
    if (size >= 4 && (!memcmp(bytes, "PK\3\4", 4) || !memcmp(bytes, "\x80\2\x8a\x0a", 4)))
        kind = "what torch.save writes";
    else if (is_safetensors(bytes, size))
        kind = "safetensors, which are weights without a model";
    return kind ? rb_why_set(why, RB_EINVAL,
                             "no ONNX model but %s: export the module with torch.onnx.export "
                             "(docs/job-file.md)",
                             kind)
                : 0;
}

int rb_onnx_open_bytes(const void *bytes, size_t size, struct rb_onnx **ret_model,
                       struct rb_why *why)
{
    const uint64_t spare = UINT64_C(64) << 20; /* nodes grow more than tensors do */
    struct rb_onnx *model;
    int err;

    if (size > INT32_MAX)
        return rb_why_set(why, RB_ELIMIT, "a protobuf of 2 GiB or more");
    err = check_kind(bytes, size, why);
    if (err)
        return err;
    err = rb_wire_scan(&onnx__model_proto__descriptor, bytes, size, RB_ONNX_DEPTH, why);
    if (err)
        return rb_why_add(why, err, "no ONNX model");
    model = rb_alloc(sizeof *model);
    model->references = 1;
    rb_capped_alloc_init(&model->capped, spare + 4 * (uint64_t)size);
    model->proto = onnx__model_proto__unpack(&model->capped.protobuf, size, bytes);
    if (!model->proto)
        err = rb_why_set(
            why, RB_EINVAL,
            "no ONNX model: malformed protobuf, or one that unpacks to more than %" PRIu64 " bytes",
            spare + 4 * (uint64_t)size);
    if (!err)
        err = check_model(model, why);
    if (err) {
        rb_onnx_close(model);
        return err;
    }
    *ret_model = model;
    return 0;
}

int rb_onnx_open(const char *path, uint64_t limit, struct rb_onnx **ret_model, struct rb_why *why)
{
    const char *slash = strrchr(path, '/');
    void *bytes = NULL;
    size_t size = 0;
    int err = rb_onnx_read(AT_FDCWD, path, false, 0, SIZE_MAX, limit ? limit : INT32_MAX, &bytes,
                           &size, why);

    if (err)
        return err;
    err = rb_onnx_open_bytes(bytes, size, ret_model, why);
    free(bytes);
    if (err)
        return rb_why_add(why, err, "%s", path);
    (*ret_model)->folder = !slash          ? rb_string(".")
                           : slash == path ? rb_string("/")
                                           : rb_format("%.*s", (int)(slash - path), path);
    return 0;
}

struct rb_onnx *rb_onnx_borrow(struct rb_onnx *model)
{
    model->references++;
    return model;
}

void rb_onnx_close(struct rb_onnx *model)
{
    if (!model || --model->references)
        return;
    rb_onnx_functions_done(model);
    if (model->proto)
        onnx__model_proto__free_unpacked(model->proto, &model->capped.protobuf);
    rb_onnx_external_done(model);
    rb_names_done(&model->initializers);
    rb_names_done(&model->kinds);
    rb_names_done(&model->arguments);
    rb_names_done(&model->changed);
    free(model->signature);
    free(model->inputs);
    free(model->folder);
    free(model);
}

static const Onnx__TypeProto__Tensor *tensor_type(const Onnx__ValueInfoProto *input)
{
    if (!input->type || input->type->value_case != ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE)
        return NULL;
    return input->type->tensor_type;
}

int rb_onnx_input_type(const Onnx__ValueInfoProto *input, struct rb_tensor_type *ret_type,
                       struct rb_why *why)
{
    const Onnx__TypeProto__Tensor *tensor = tensor_type(input);
    struct rb_tensor_type type = {0};

    if (!tensor || !tensor->has_elem_type || !rb_dtype_size((enum rb_dtype)tensor->elem_type))
        return rb_why_set(why, RB_EUNSUPPORTED, "it is no tensor of a supported type");
    if (!tensor->shape)
        return rb_why_set(why, RB_EUNSUPPORTED, "it has no shape");
    if (tensor->shape->n_dim > RB_MAX_RANK)
        return rb_why_set(why, RB_EUNSUPPORTED, "it has %zu axes; the most is %d",
                          tensor->shape->n_dim, RB_MAX_RANK);
    type.dtype = (enum rb_dtype)tensor->elem_type;
    type.rank = (int)tensor->shape->n_dim;
    for (int i = 0; i < type.rank; i++) {
        const Onnx__TensorShapeProto__Dimension *dim = tensor->shape->dim[i];

        type.dim[i] = -1;
        if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE)
            type.dim[i] = dim->dim_value;
        if (type.dim[i] < -1)
            return rb_why_set(why, RB_EINVAL, "axis %d has the size %" PRId64, i, type.dim[i]);
    }
    *ret_type = type;
    return 0;
}

const char *rb_onnx_symbol(const Onnx__ValueInfoProto *input, int axis)
{
    const Onnx__TensorShapeProto__Dimension *dim = tensor_type(input)->shape->dim[axis];
    bool named = dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;

    return named && dim->dim_param ? dim->dim_param : "";
}

int rb_onnx_input_declared(const struct rb_onnx *model, int i, struct rb_tensor_type *ret_type,
                           struct rb_why *why)
{
    char room[80];
    int err = rb_onnx_input_type(model->inputs[i], ret_type, why);

    return err ? rb_why_add(why, err, "input '%s'", rb_onnx_quote(model->inputs[i]->name, room))
               : 0;
}

bool rb_onnx_next_free(const struct rb_onnx *model, int *input, int *axis)
{
    struct rb_tensor_type type;

    for (; *input < rb_onnx_inputs(model); ++*input, *axis = 0) {
        if (rb_onnx_input_declared(model, *input, &type, NULL))
            continue;
        while (++*axis < type.rank)
            if (type.dim[*axis] < 0)
                return true;
    }
    return false;
}

int rb_onnx_lengths(const struct rb_onnx *model, int64_t *ret_lengths, int most)
{
    const Onnx__GraphProto *graph = model->proto->graph;
    int n = 0;

    for (size_t i = 0; i < graph->n_initializer; i++)
        for (size_t axis = 0; axis < graph->initializer[i]->n_dims && n < most; axis++) {
            int k = 0;

            while (k < n && ret_lengths[k] != graph->initializer[i]->dims[axis])
                k++;
            if (k == n)
                ret_lengths[n++] = graph->initializer[i]->dims[axis];
        }
    return n;
}

bool rb_onnx_is_of_pytorch(const struct rb_onnx *model)
{
    const char *producer = model->proto->producer_name;

    return producer && !strcmp(producer, "pytorch");
}

int rb_onnx_info(const struct rb_onnx *model, struct rb_onnx_info *ret_info, struct rb_why *why)
{
    const Onnx__ModelProto *proto = model->proto;
    const Onnx__ValueInfoProto *input = model->n_inputs ? model->inputs[0] : NULL;
    struct rb_onnx_info info = {
        .ir_version = proto->ir_version,
        .opset = model->opset,
        .producer = proto->producer_name ? proto->producer_name : "",
        .n_nodes = (int)proto->graph->n_node,
        .n_initializers = (int)proto->graph->n_initializer,
    };
    int err;

    if (!input)
        return rb_why_set(why, RB_EINVAL, "the model has no input");
    err = rb_onnx_input_declared(model, 0, &info.input_type, why);
    if (err)
        return err;
    info.input = input->name;
    if (info.input_type.rank > 0 && info.input_type.dim[0] > 0)
        info.fixed_batch = info.input_type.dim[0];
    *ret_info = info;
    return 0;
}
