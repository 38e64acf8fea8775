/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that a model defines. */
#include "graph/onnx/model.h"
#include "graph/onnx/wire_scan.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <stdlib.h>
#include <string.h>

enum {
    NODE_OVERLOAD = 8, /* NodeProto */
    FUNCTION_DEFAULT = 11,
    FUNCTION_OVERLOAD = 13,
};

static char *make_key(const char *domain, const char *name, const ProtobufCMessage *message,
                      unsigned overload)
{
    struct rb_buffer key = {0};

    rb_buffer_format(&key, "%s\n%s\n", domain ? domain : "", name ? name : "");
    for (unsigned i = 0; i < message->n_unknown_fields; i++) {
        size_t size = 0;
        const uint8_t *bytes = rb_onnx_newer_field(message, i, overload, &size);

        if (bytes && !memchr(bytes, '\0', size))
            rb_buffer_add(&key, bytes, size);
    }
    return rb_buffer_take(&key);
}

static int read_default(struct rb_onnx *model, struct rb_onnx_function *function,
                        const uint8_t *bytes, size_t size, struct rb_why *why)
{
    Onnx__AttributeProto *attribute;

    if (rb_wire_scan(&onnx__attribute_proto__descriptor, bytes, size, RB_ONNX_DEPTH, why))
        return rb_why_set(why, RB_EINVAL, "a default that is no attribute");
    attribute = onnx__attribute_proto__unpack(&model->capped.protobuf, size, bytes);
    if (!attribute)
        return rb_why_set(why, RB_EINVAL, "a default that is no attribute, or too much memory");
    function->defaults[function->n_defaults++] = attribute;
    return 0;
}

static int read_function(struct rb_onnx *model, struct rb_onnx_function *function,
                         struct rb_why *why)
{
    const Onnx__FunctionProto *proto = function->proto;
    const ProtobufCMessage *message = &proto->base;
    int err = 0;

    function->opset = model->opset;
    for (size_t i = 0; i < proto->n_opset_import; i++) {
        const Onnx__OperatorSetIdProto *set = proto->opset_import[i];

        if ((!set->domain || !set->domain[0] || !strcmp(set->domain, "ai.onnx")) &&
            set->has_version)
            function->opset = set->version;
    }
    err = rb_onnx_check_opset(function->opset, why);
    function->defaults = rb_alloc(sizeof(*function->defaults) * (message->n_unknown_fields + 1));
    for (unsigned i = 0; !err && i < message->n_unknown_fields; i++) {
        size_t size = 0;
        const uint8_t *bytes = rb_onnx_newer_field(message, i, FUNCTION_DEFAULT, &size);

        if (bytes)
            err = read_default(model, function, bytes, size, why);
    }
    function->key = make_key(proto->domain, proto->name, message, FUNCTION_OVERLOAD);
    if (!err && !rb_names_add(&model->functions_by_key, function->key, function))
        err = rb_why_set(why, RB_EINVAL, "there are two by that name");
    return err;
}

int rb_onnx_list_functions(struct rb_onnx *model, struct rb_why *why)
{
    size_t n = model->proto->n_functions;
    char room[80];

    model->functions = rb_alloc(sizeof(*model->functions) * (n + 1));
    while (model->n_functions < n) {
        struct rb_onnx_function *function = &model->functions[model->n_functions];
        int err;

        function->proto = model->proto->functions[model->n_functions++];
        err = read_function(model, function, why);
        if (err)
            return rb_why_add(why, err, "function '%s'",
                              rb_onnx_quote(function->proto->name, room));
    }
    return 0;
}

void rb_onnx_functions_done(struct rb_onnx *model)
{
    for (size_t i = 0; i < model->n_functions; i++) {
        struct rb_onnx_function *function = &model->functions[i];

        for (size_t j = 0; j < function->n_defaults; j++)
            onnx__attribute_proto__free_unpacked(function->defaults[j], &model->capped.protobuf);
        free(function->defaults);
        free(function->key);
    }
    free(model->functions);
    rb_names_done(&model->functions_by_key);
}

const struct rb_onnx_function *rb_onnx_function(const struct rb_onnx *model,
                                                const Onnx__NodeProto *node)
{
    RB_CLEANUP(rb_freep)
    char *key = make_key(node->domain, node->op_type, &node->base, NODE_OVERLOAD);

    return rb_names_get(&model->functions_by_key, key);
}
