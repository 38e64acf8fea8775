/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the model: a call is imported as the nodes of the body, whose names have a scope of
 * their own. */
#include "graph/import/import.h"

#include <inttypes.h>
#include <string.h>

enum {
    MOST_DEPTH = 16,       /* functions may not call themselves, but a file may have that */
    MOST_CALLED = 1 << 20, /* nodes of bodies: short functions that call each other make many */
};

static const Onnx__AttributeProto *find(Onnx__AttributeProto *const *attributes, size_t n,
                                        const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (attributes[i]->name && !strcmp(attributes[i]->name, name))
            return attributes[i];
    return NULL;
}

const Onnx__AttributeProto *rb_import_meant(const struct rb_import *import,
                                            const Onnx__AttributeProto *attribute)
{
    const struct rb_import_call *call = import->call;

    for (; attribute && call && attribute->ref_attr_name && attribute->ref_attr_name[0];
         call = call->outer) {
        const char *name = attribute->ref_attr_name;

        attribute = find(call->node->attribute, call->node->n_attribute, name);
        if (!attribute)
            return find(call->function->defaults, call->function->n_defaults, name);
    }
    return attribute;
}

bool rb_import_left_out(const struct rb_import *import, const char *name)
{
    const struct rb_import_call *call = import->call;

    for (size_t i = 0; call && i < call->function->proto->n_input; i++) {
        bool given = i < call->node->n_input && call->node->input[i][0];

        if (!given && !strcmp(call->function->proto->input[i], name))
            return true;
    }
    return false;
}

/* The values of the call's inputs by the names that the body has for them. */
static int bind_inputs(struct rb_import *import, const struct rb_import *outer)
{
    const Onnx__FunctionProto *proto = import->call->function->proto;
    const Onnx__NodeProto *node = import->call->node;

    if (node->n_input > proto->n_input)
        return RB_IMPORT_BAD(import, "%zu inputs for a function of %zu", node->n_input,
                             proto->n_input);
    for (size_t i = 0; i < node->n_input; i++) {
        void *value = rb_names_get(&outer->values, node->input[i]);
        void *sequence = rb_names_get(&outer->sequences, node->input[i]);

        if ((value && !rb_names_add(&import->values, proto->input[i], value)) ||
            (sequence && !rb_names_add(&import->sequences, proto->input[i], sequence)))
            return RB_IMPORT_BAD(import, "the function has two inputs by one name");
    }
    return 0;
}

static int import_body(struct rb_import *import)
{
    const Onnx__FunctionProto *proto = import->call->function->proto;
    int err = 0;

    for (size_t i = 0; !err && i < proto->n_node; i++)
        err = ++import->called > MOST_CALLED
                  ? rb_why_set(import->why, RB_ELIMIT,
                               "the model's functions have more than %d nodes", MOST_CALLED)
                  : rb_import_node(import, proto->node[i]);
    return err;
}

static int bind_outputs(struct rb_import *import, const Onnx__FunctionProto *proto,
                        const struct rb_import *body)
{
    if (import->node->n_output > proto->n_output)
        return RB_IMPORT_BAD(import, "%zu outputs of a function of %zu", import->node->n_output,
                             proto->n_output);
    for (size_t i = 0; i < import->node->n_output; i++) {
        struct rb_value *value = rb_names_get(&body->values, proto->output[i]);
        const struct rb_sequence *sequence = rb_names_get(&body->sequences, proto->output[i]);
        int err = 0;

        if (value)
            err = rb_import_bind(import, (int)i, value);
        else if (sequence)
            err = rb_import_bind_sequence(import, (int)i, sequence);
        else if (rb_import_wants(import, (int)i))
            err = RB_IMPORT_BAD(import, "output %zu of the function is made by no node", i);
        if (err)
            return err;
    }
    return 0;
}

int rb_import_call(struct rb_import *import, const struct rb_onnx_function *function)
{
    const struct rb_import_call call = {function, import->node, import->call,
                                        import->call ? import->call->depth + 1 : 1};
    struct rb_import body = *import;
    int err;

    if (call.depth > MOST_DEPTH)
        return rb_why_set(import->why, RB_ELIMIT, "functions call each other more than %d deep",
                          MOST_DEPTH);
    body.call = &call;
    body.opset = function->opset;
    body.values = body.sequences = (struct rb_names){0};
    err = bind_inputs(&body, import);
    if (!err)
        err = import_body(&body);
    import->called = body.called;
    import->err = 0;
    import->narrow = import->wide = RB_NONE;
    if (!err)
        err = bind_outputs(import, function->proto, &body);
    rb_names_done(&body.values);
    rb_names_done(&body.sequences);
    return err;
}
