/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/initial.h"

#include "base/arena.h"
#include "base/file.h"
#include "proto/safetensors.h"

#include <stdlib.h>
#include <string.h>

static size_t bytes_of(const struct rb_tensor_type *type)
{
    return (size_t)rb_tensor_elements(type) * rb_dtype_size(type->dtype);
}

static int replace(struct rb_safetensor *tensors, size_t n, const struct rb_safetensor *from,
                   struct rb_why *why)
{
    char have[RB_TENSOR_TEXT], want[RB_TENSOR_TEXT];
    size_t i = 0;

    while (i < n && strcmp(tensors[i].name, from->name))
        i++;
    if (i == n)
        return rb_why_set(why, RB_EINVAL, "the model has no initializer '%s'", from->name);
    if (!rb_tensor_same(&tensors[i].type, &from->type))
        return rb_why_set(why, RB_EINVAL, "'%s' is %s, and the model's is %s", from->name,
                          rb_tensor_text(&from->type, have),
                          rb_tensor_text(&tensors[i].type, want));
    tensors[i].data = from->data;
    return 0;
}

static int replace_all(struct rb_safetensor *tensors, size_t n, const struct rb_map *file,
                       struct rb_why *why)
{
    struct rb_safetensor *from = NULL;
    int count = 0, err = rb_safetensors_read(file->data, file->size, &from, &count, why);

    for (int i = 0; i < count && !err; i++)
        err = replace(tensors, n, &from[i], why);
    free(from);
    return err;
}

static int collect(const struct rb_graph *graph, const Rb__Model *model,
                   struct rb_safetensor *tensors, struct rb_why *why)
{
    size_t n = 0;

    for (int i = 0; i < graph->n_values; i++) {
        const struct rb_value *value = graph->values[i];

        if (value->role != RB_VALUE_WEIGHT && value->role != RB_VALUE_BUFFER)
            continue;
        if (n == model->n_variables || strcmp(model->variables[n]->name, value->name))
            return rb_why_set(why, RB_EINTERNAL, "'%s' is not where the model has it", value->name);
        if (!value->data && bytes_of(&value->type))
            return rb_why_set(why, RB_EINVAL, "initializer '%s' has no contents", value->name);
        tensors[n++] = (struct rb_safetensor){value->name, value->type, value->data};
    }
    return 0;
}

int rb_initial_weights(const struct rb_graph *graph, const Rb__Model *model, const char *weights,
                       struct rb_buffer *ret_safetensors, struct rb_why *why)
{
    struct rb_safetensor *tensors = rb_alloc(sizeof(*tensors) * (model->n_variables + 1));
    struct rb_map file = {0};
    int err = collect(graph, model, tensors, why);

    if (!err && weights) {
        err = rb_map_open(weights, &file, why);
        if (!err)
            err = replace_all(tensors, model->n_variables, &file, why);
        if (err)
            rb_why_add(why, err, "spec.model.weights: %s", weights);
    }
    if (!err) {
        size_t size = 0;

        for (size_t i = 0; i < model->n_variables; i++)
            size += bytes_of(&tensors[i].type);
        rb_safetensors_header(tensors, (int)model->n_variables, ret_safetensors);
        rb_buffer_reserve(ret_safetensors, size);
        for (size_t i = 0; i < model->n_variables; i++)
            rb_buffer_add(ret_safetensors, tensors[i].data, bytes_of(&tensors[i].type));
    }
    rb_map_close(&file);
    free(tensors);
    return err;
}
