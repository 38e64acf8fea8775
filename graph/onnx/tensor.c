/* SPDX-License-Identifier: Apache-2.0 */
/* TensorProto: contents in one of six places, all of them checked against the shape. */
#include "graph/onnx/model.h"
#include "graph/shapes/shapes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct rb_external {
    const char *location;
    uint64_t offset, length;
    bool has_length;
};

static bool parse_u64(const char *text, uint64_t *ret)
{
    char *end;

    if (!text || *text < '0' || *text > '9')
        return false;
    *ret = strtoull(text, &end, 10);
    return *end == '\0' && *ret < INT64_MAX;
}

static int parse_external(const Onnx__TensorProto *tensor, struct rb_external *ret,
                          struct rb_why *why)
{
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const char *key = tensor->external_data[i]->key;
        const char *value = tensor->external_data[i]->value;

        if (!key || !value)
            continue;
        if (!strcmp(key, "location"))
            ret->location = value;
        else if (!strcmp(key, "offset") && !parse_u64(value, &ret->offset))
            return rb_why_set(why, RB_EINVAL, "external data with a bad offset");
        else if (!strcmp(key, "length")) {
            if (!parse_u64(value, &ret->length))
                return rb_why_set(why, RB_EINVAL, "external data with a bad length");
            ret->has_length = true;
        }
    }
    if (!ret->location || !ret->location[0])
        return rb_why_set(why, RB_EINVAL, "external data without a location");
    return 0;
}

/* The file must lie in the model's folder itself: a model must not be able to read what its sender
 * could not.  "./" in front is allowed, and means the same. */
static int check_location(const char **place, struct rb_why *why)
{
    const char *location = *place;
    char room[80];

    while (location[0] == '.' && location[1] == '/' && location[2])
        location += 2;
    *place = location;
    for (const char *at = location; *at; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return rb_why_set(why, RB_EINVAL, "external data at '%s': control characters in a name",
                              rb_onnx_quote(location, room));
    if (strchr(location, '/') || !strcmp(location, "..") || !strcmp(location, "."))
        return rb_why_set(why, RB_EINVAL,
                          "external data at '%s': only files right beside the model are read",
                          rb_onnx_quote(location, room));
    return 0;
}

/* Is it an initializer?  Its contents are read once, however often the model is imported, because
 * they are large. */
static bool is_kept(const struct rb_onnx *model, const Onnx__TensorProto *tensor)
{
    return tensor->name && rb_names_get(&model->initializers, tensor->name) == tensor;
}

static const void *keep(const struct rb_onnx *model, const Onnx__TensorProto *tensor,
                        struct rb_arena *arena, void *bytes, size_t size)
{
    const void *copy;

    if (is_kept(model, tensor)) {
        rb_names_add(&((struct rb_onnx *)model)->external, tensor->name, bytes);
        return bytes;
    }
    copy = rb_arena_copy(arena, bytes, size);
    free(bytes);
    return copy;
}

void rb_onnx_external_done(struct rb_onnx *model)
{
    for (size_t i = 0; i < model->external.room; i++)
        if (model->external.slots[i].name)
            free(model->external.slots[i].item);
    rb_names_done(&model->external);
}

static int read_external(const struct rb_onnx *model, const Onnx__TensorProto *tensor,
                         struct rb_arena *arena, size_t size, const void **ret_data,
                         struct rb_why *why)
{
    struct rb_external external = {0};
    void *bytes = NULL;
    size_t got = 0;
    int err, folder;

    *ret_data = is_kept(model, tensor) ? rb_names_get(&model->external, tensor->name) : NULL;
    if (*ret_data)
        return 0;
    err = parse_external(tensor, &external, why);
    if (!err && !model->folder)
        err = rb_why_set(why, RB_EUNSUPPORTED, "external data, but the model has no folder");
    if (!err)
        err = check_location(&external.location, why);
    if (!err && external.has_length && external.length != size)
        err = rb_why_set(why, RB_EINVAL, "%" PRIu64 " bytes of external data, its shape needs %zu",
                         external.length, size);
    if (err)
        return err;
    folder = open(model->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return rb_why_set(why, RB_ENOTFOUND, "cannot open the folder of the model");
    err = rb_onnx_read(folder, external.location, true, external.offset, size, UINT64_MAX, &bytes,
                       &got, why);
    close(folder);
    if (err == RB_ENOTFOUND) /* the model is there, but not all of it */
        return rb_why_add(why, RB_EINVAL,
                          "the weights lie in a file of their own, to be kept beside the "
                          "model (or export with external_data=False)");
    if (err)
        return err;
    *ret_data = keep(model, tensor, arena, bytes, size);
    return 0;
}

static int check_count(size_t there, int64_t elements, struct rb_why *why)
{
    if (there != (size_t)elements)
        return rb_why_set(why, RB_EINVAL, "%zu numbers for a shape of %" PRId64, there, elements);
    return 0;
}

/* Element types below 32 bits are stored as int32, half floats as their bits. */
static int narrow(const Onnx__TensorProto *tensor, struct rb_arena *arena,
                  const struct rb_tensor_type *type, int64_t elements, const void **ret_data,
                  struct rb_why *why)
{
    size_t width = rb_dtype_size(type->dtype);
    int err = check_count(tensor->n_int32_data, elements, why);
    uint8_t *bytes;

    if (err)
        return err;
    if (width == 4) {
        *ret_data = tensor->int32_data;
        return 0;
    }
    bytes = rb_arena_alloc(arena, width * (size_t)elements);
    for (size_t i = 0; i < (size_t)elements; i++) {
        uint32_t bits = (uint32_t)tensor->int32_data[i];

        if (type->dtype == RB_BOOL)
            bits = bits != 0;
        for (size_t j = 0; j < width; j++)
            bytes[i * width + j] = (uint8_t)(bits >> (8 * j));
    }
    *ret_data = bytes;
    return 0;
}

static int typed_fields(const Onnx__TensorProto *tensor, struct rb_arena *arena,
                        const struct rb_tensor_type *type, int64_t elements, const void **ret_data,
                        struct rb_why *why)
{
    switch (type->dtype) {
    case RB_F32:
        *ret_data = tensor->float_data;
        return check_count(tensor->n_float_data, elements, why);
    case RB_F64:
        *ret_data = tensor->double_data;
        return check_count(tensor->n_double_data, elements, why);
    case RB_I64:
        *ret_data = tensor->int64_data;
        return check_count(tensor->n_int64_data, elements, why);
    default:
        return narrow(tensor, arena, type, elements, ret_data, why);
    }
}

static int raw_data(const Onnx__TensorProto *tensor, struct rb_arena *arena,
                    const struct rb_tensor_type *type, size_t size, const void **ret_data,
                    struct rb_why *why)
{
    uint8_t *bytes;

    if (tensor->raw_data.len != size)
        return rb_why_set(why, RB_EINVAL, "%zu bytes of data, its shape needs %zu",
                          tensor->raw_data.len, size);
    *ret_data = tensor->raw_data.data;
    if (type->dtype != RB_BOOL)
        return 0;
    bytes = rb_arena_alloc(arena, size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = tensor->raw_data.data[i] != 0;
    *ret_data = bytes;
    return 0;
}

int rb_onnx_tensor(const struct rb_onnx *model, const Onnx__TensorProto *tensor,
                   struct rb_arena *arena, struct rb_tensor_type *ret_type, const void **ret_data,
                   struct rb_why *why)
{
    struct rb_tensor_type type = {.dtype = tensor->has_data_type ? tensor->data_type : 0};
    const void *data = NULL;
    int64_t elements;
    size_t size;
    int err;

    if (tensor->n_dims > RB_MAX_RANK)
        return rb_why_set(why, RB_EUNSUPPORTED, "%zu axes; the most is %d", tensor->n_dims,
                          RB_MAX_RANK);
    if (tensor->segment)
        return rb_why_set(why, RB_EUNSUPPORTED, "a tensor in segments");
    type.rank = (int)tensor->n_dims;
    for (int i = 0; i < type.rank; i++)
        type.dim[i] = tensor->dims[i];
    err = rb_shapes_check(&type, why);
    if (err)
        return err;
    elements = rb_tensor_elements(&type);
    size = (size_t)elements * rb_dtype_size(type.dtype);
    if (tensor->has_data_location &&
        tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
        err = read_external(model, tensor, arena, size, &data, why);
    else if (tensor->has_raw_data)
        err = raw_data(tensor, arena, &type, size, &data, why);
    else
        err = typed_fields(tensor, arena, &type, elements, &data, why);
    if (err)
        return err;
    *ret_type = type;
    *ret_data = data ? data : rb_arena_alloc(arena, 1); /* no elements, no contents */
    return 0;
}
