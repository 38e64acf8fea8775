/* SPDX-License-Identifier: Apache-2.0 */
/* What import functions share: attributes, inputs, emitting. */
#include "graph/fold.h"
#include "graph/import/import.h"
#include "graph/shapes/shapes.h"

#include <inttypes.h>
#include <string.h>

/* ---- Attributes ---- */

const Onnx__AttributeProto *rb_import_attribute(const struct rb_import *import, const char *key)
{
    for (size_t i = 0; i < import->node->n_attribute; i++) {
        const Onnx__AttributeProto *attribute = import->node->attribute[i];

        if (attribute->name && !strcmp(attribute->name, key))
            return rb_import_meant(import, attribute);
    }
    return NULL;
}

/* Files before IR 2 left out the type; it is checked only where it is present. */
static int check_type(struct rb_import *import, const Onnx__AttributeProto *attribute,
                      Onnx__AttributeProto__AttributeType type, const char *text)
{
    if (attribute->ref_attr_name && attribute->ref_attr_name[0])
        return RB_IMPORT_NO(import, "attribute '%s' refers to a function's", attribute->name);
    if (attribute->has_type && attribute->type != type)
        return RB_IMPORT_BAD(import, "attribute '%s' is not %s", attribute->name, text);
    return 0;
}

int rb_import_int(struct rb_import *import, const char *key, int64_t *value)
{
    const Onnx__AttributeProto *attribute = rb_import_attribute(import, key);
    int err = attribute ? check_type(import, attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT,
                                     "an integer")
                        : 0;

    if (!err && attribute)
        *value = attribute->i;
    return err;
}

int rb_import_float(struct rb_import *import, const char *key, float *value)
{
    const Onnx__AttributeProto *attribute = rb_import_attribute(import, key);
    int err = attribute ? check_type(import, attribute,
                                     ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT, "a float")
                        : 0;

    if (!err && attribute)
        *value = attribute->f;
    return err;
}

int rb_import_text(struct rb_import *import, const char *key, const char **value)
{
    const Onnx__AttributeProto *attribute = rb_import_attribute(import, key);
    int err = attribute ? check_type(import, attribute,
                                     ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING, "a string")
                        : 0;
    char *text;

    if (err || !attribute)
        return err;
    text = rb_arena_alloc(&import->graph->arena, attribute->s.len + 1);
    if (attribute->s.len)
        memcpy(text, attribute->s.data, attribute->s.len);
    *value = text;
    return 0;
}

int rb_import_ints(struct rb_import *import, const char *key, const int64_t **values, int *n)
{
    const Onnx__AttributeProto *attribute = rb_import_attribute(import, key);
    int err = attribute ? check_type(import, attribute, ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS,
                                     "integers")
                        : 0;

    if (err || !attribute)
        return err;
    if (attribute->n_ints > 1 << 20)
        return RB_IMPORT_BAD(import, "attribute '%s' has %zu integers", key, attribute->n_ints);
    *values = attribute->ints;
    *n = (int)attribute->n_ints;
    return 0;
}

/* ---- Inputs and outputs ---- */

struct rb_value *rb_import_in(struct rb_import *import, int i)
{
    const char *name = (size_t)i < import->node->n_input ? import->node->input[i] : NULL;
    struct rb_value *value = name && name[0] ? rb_names_get(&import->values, name) : NULL;

    if (value && import->narrow && value->type.dtype == import->narrow) {
        int err = rb_import_cast(import, value, import->wide, &value);

        import->err = import->err ? import->err : err;
    }
    return value;
}

int rb_import_need(struct rb_import *import, int i, struct rb_value **ret)
{
    struct rb_value *value = rb_import_in(import, i);

    if (!value)
        return RB_IMPORT_BAD(import, "input %d is missing", i);
    *ret = value;
    return 0;
}

bool rb_import_wants(const struct rb_import *import, int output)
{
    return (size_t)output < import->node->n_output && import->node->output[output] &&
           import->node->output[output][0];
}

int rb_import_bind(struct rb_import *import, int output, struct rb_value *value)
{
    char room[80];

    if (!rb_import_wants(import, output))
        return 0;
    if (import->narrow && value->type.dtype == import->wide) {
        int err = rb_import_cast(import, value, import->narrow, &value);

        if (err)
            return err;
    }
    if (!rb_names_add(&import->values, import->node->output[output], value))
        return RB_IMPORT_BAD(import, "a second value by the name '%s'",
                             rb_onnx_quote(import->node->output[output], room));
    return 0;
}

bool rb_import_ask(struct rb_value *value)
{
    if (value->role == RB_VALUE_INPUT && value->data)
        value->role = RB_VALUE_CONST;
    return rb_fold_known(value);
}

bool rb_import_settle(struct rb_value *value)
{
    if (value->role == RB_VALUE_WEIGHT && value->data) {
        value->role = RB_VALUE_BUFFER;
        value->frozen = false;
    }
    return rb_import_ask(value);
}

int rb_import_bind_sequence(struct rb_import *import, int output,
                            const struct rb_sequence *sequence)
{
    char room[80];

    if (!rb_import_wants(import, output))
        return 0;
    if (!rb_names_add(&import->sequences, import->node->output[output], (void *)sequence))
        return RB_IMPORT_BAD(import, "a second sequence by the name '%s'",
                             rb_onnx_quote(import->node->output[output], room));
    return 0;
}

int rb_import_known_ints(struct rb_import *import, int i, const char *what, const int64_t **values,
                         int *n)
{
    struct rb_value *value = rb_import_in(import, i);
    int64_t *copy, count;

    *values = NULL;
    *n = 0;
    if (!value)
        return 0;
    if (value->type.dtype != RB_I64 && value->type.dtype != RB_I32)
        return RB_IMPORT_BAD(import, "input %d (%s) is %s, not int64", i, what,
                             rb_dtype_text(value->type.dtype));
    if (!rb_import_ask(value))
        return RB_IMPORT_NO(import,
                            "input %d (%s) is computed from the data; it must be known when the "
                            "model is imported",
                            i, what);
    count = rb_tensor_elements(&value->type);
    if (value->type.rank > 1 || count > 1 << 20)
        return RB_IMPORT_BAD(import, "input %d (%s) is no list of numbers", i, what);
    copy = RB_ARENA_NEW(&import->graph->arena, int64_t, count);
    for (int64_t j = 0; j < count; j++)
        copy[j] = rb_fold_integer(value, j);
    *values = copy;
    *n = (int)count;
    return 0;
}

int rb_import_known_float(struct rb_import *import, int i, const char *what, float *value)
{
    struct rb_value *in = rb_import_in(import, i);

    if (!in)
        return 0;
    if (rb_tensor_elements(&in->type) != 1)
        return RB_IMPORT_BAD(import, "input %d (%s) is not one number", i, what);
    rb_import_ask(in);
    if (in->role == RB_VALUE_TEMP || in->role == RB_VALUE_INPUT || !in->data)
        return RB_IMPORT_NO(import, "input %d (%s) must be known when the model is imported", i,
                            what);
    *value = (float)rb_fold_real(in, 0);
    return 0;
}

int rb_import_axis(struct rb_import *import, int64_t axis, int rank, int64_t *ret)
{
    if (axis < -rank || axis >= rank)
        return RB_IMPORT_BAD(import, "axis %" PRId64 " of a tensor of %d axes", axis, rank);
    *ret = axis < 0 ? axis + rank : axis;
    return 0;
}

int rb_import_axes(struct rb_import *import, int64_t since, int i, int rank, int64_t *axes, int *n)
{
    const int64_t *given = NULL;
    unsigned seen = 0;
    int count = 0;
    int err = import->opset >= since ? rb_import_known_ints(import, i, "axes", &given, &count)
                                     : rb_import_ints(import, "axes", &given, &count);

    if (!err && count > rank)
        err = RB_IMPORT_BAD(import, "%d axes of a tensor of %d", count, rank);
    for (int j = 0; !err && j < count; j++) {
        err = rb_import_axis(import, given[j], rank, &axes[j]);
        if (!err && seen >> axes[j] & 1u)
            err = RB_IMPORT_BAD(import, "axis %" PRId64 " is named twice", axes[j]);
        if (!err)
            seen |= 1u << axes[j];
    }
    if (!err)
        *n = count;
    return err;
}

/* ---- Emitting ---- */

int rb_import_emit_many(struct rb_import *import, enum rb_op op, int n_in,
                        struct rb_value *const *in, int n_attributes,
                        const struct rb_graph_attribute *attributes, unsigned want,
                        const struct rb_tensor_type *given, struct rb_value **ret_outs)
{
    struct rb_node *node;
    int err = rb_graph_node(import->graph, op, import->name, n_in, in, n_attributes, attributes,
                            want, given, &node, import->why);

    if (!err)
        err = rb_fold_newest(import->graph, import->why);
    if (err)
        return err;
    for (int i = 0; i < node->n_out; i++)
        ret_outs[i] = node->out[i];
    return 0;
}

int rb_import_emit(struct rb_import *import, enum rb_op op, int n_in, struct rb_value *const *in,
                   int n_attributes, const struct rb_graph_attribute *attributes,
                   const struct rb_tensor_type *given, struct rb_value **ret_out)
{
    return rb_import_emit_many(import, op, n_in, in, n_attributes, attributes, 1, given, ret_out);
}

int rb_import_reshape(struct rb_import *import, struct rb_value *x, int rank, const int64_t *dim,
                      struct rb_value **ret_out)
{
    struct rb_tensor_type type = {.dtype = x->type.dtype, .rank = rank};

    if (rank > RB_MAX_RANK)
        return RB_IMPORT_NO(import, "%d axes; the most is %d", rank, RB_MAX_RANK);
    for (int i = 0; i < rank; i++)
        type.dim[i] = dim[i];
    if (rb_tensor_same(&type, &x->type)) {
        *ret_out = x;
        return 0;
    }
    return rb_import_emit(import, RB_OP_RESHAPE, 1, &x, 0, NULL, &type, ret_out);
}

int rb_import_cast(struct rb_import *import, struct rb_value *x, enum rb_dtype dtype,
                   struct rb_value **ret_out)
{
    struct rb_tensor_type type = x->type;

    if (dtype == type.dtype) {
        *ret_out = x;
        return 0;
    }
    type.dtype = dtype;
    return rb_import_emit(import, RB_OP_CAST, 1, &x, 0, NULL, &type, ret_out);
}

int rb_import_unary(struct rb_import *import, enum rb_op op, struct rb_value *x,
                    struct rb_value **ret_out)
{
    return rb_import_emit(import, op, 1, &x, 0, NULL, NULL, ret_out);
}

int rb_import_binary(struct rb_import *import, enum rb_op op, struct rb_value *a,
                     struct rb_value *b, struct rb_value **ret_out)
{
    struct rb_value *in[2] = {a, b};

    return rb_import_emit(import, op, 2, in, 0, NULL, NULL, ret_out);
}
