/* SPDX-License-Identifier: Apache-2.0 */
/* The call of torch.onnx.export that should have made a model, ready to paste. */
#include "graph/advice_inside.h"

#include "base/arena.h"
#include "base/buffer.h"

#include <stdio.h>
#include <string.h>

/* From torch 2.5 on the older exporter has to be asked for. */
static bool is_asked_for(const Onnx__ModelProto *proto)
{
    int major = 0, minor = 0;

    if (proto->producer_version)
        sscanf(proto->producer_version, "%3d.%3d", &major, &minor);
    return major > 2 || (major == 2 && minor >= 5);
}

/* Can the name stand in the call unchanged? */
static bool is_word(const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    size_t first = strspn(name, letters);

    return first && strcmp(name, "model") != 0 && strcmp(name, "torch") != 0 &&
           first + strspn(name + first, "0123456789") == strlen(name);
}

/* "0: \"batch\"", and the other free axes of the input. */
static void add_axes(const Onnx__ValueInfoProto *input, bool fresh, struct rb_buffer *axes)
{
    struct rb_tensor_type type = {0};

    rb_buffer_text(axes, fresh ? "{0: torch.export.Dim(\"batch\")" : "{0: \"batch\"");
    if (rb_onnx_input_type(input, &type, NULL))
        type.rank = 0;
    for (int axis = 1; axis < type.rank; axis++)
        if (type.dim[axis] < 0 && is_word(rb_onnx_symbol(input, axis)))
            rb_buffer_format(axes, fresh ? ", %d: torch.export.Dim(\"%s\")" : ", %d: \"%s\"", axis,
                             rb_onnx_symbol(input, axis));
    rb_buffer_text(axes, "}");
}

const char *rb_advice_call(const struct rb_onnx *model, struct rb_arena *arena)
{
    RB_CLEANUP(rb_buffer_done) struct rb_buffer names = {0}, axes = {0}, variables = {0};
    bool fresh = rb_advice_is_new_exporter(model->proto);
    char room[80];

    for (int i = 0; i < model->n_inputs && i < 8; i++) {
        const char *name = rb_onnx_quote(model->inputs[i]->name, room);

        if (strpbrk(name, "\"\\")) /* the pasted text must be this call and nothing else */
            name = rb_arena_format(arena, "x%d", i);
        rb_buffer_text(&variables, i ? ", " : "");
        if (model->n_inputs > 1 && is_word(name))
            rb_buffer_text(&variables, name);
        else if (model->n_inputs > 1)
            rb_buffer_format(&variables, "x%d", i);
        rb_buffer_format(&names, "%s\"%s\"", i ? ", " : "", name);
        rb_buffer_text(&axes, i ? ", " : "");
        if (!fresh)
            rb_buffer_format(&axes, "\"%s\": ", name);
        add_axes(model->inputs[i], fresh, &axes);
    }
    rb_buffer_text(&variables, model->n_inputs > 1 ? "" : "x,");
    rb_buffer_text(&names, "");
    rb_buffer_text(&axes, "");
    if (fresh)
        return rb_arena_format(
            arena,
            "torch.onnx.export(model.train(), (%s), \"model.onnx\", dynamo=True, optimize=False, "
            "opset_version=18, input_names=[%s], dynamic_shapes=(%s,))",
            variables.data, names.data, axes.data);
    return rb_arena_format(
        arena,
        "torch.onnx.export(model.train(), (%s), \"model.onnx\", %sopset_version=17, "
        "training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, "
        "input_names=[%s], dynamic_axes={%s})%s",
        variables.data, is_asked_for(model->proto) ? "dynamo=False, " : "", names.data, axes.data,
        is_asked_for(model->proto) ? "" : " # from torch 2.5 on with dynamo=False");
}
