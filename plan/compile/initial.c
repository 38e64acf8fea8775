/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/compile/initial.h"

#include "base/arena.h"
#include "plan/compile/match.h"

#include <stdlib.h>
#include <string.h>

/* Where a variable's contents are until they are written. */
struct source {
    enum rb_dtype dtype;
    const void *data;
};

static size_t bytes_of(const struct rb_tensor_type *type)
{
    return (size_t)rb_tensor_elements(type) * rb_dtype_size(type->dtype);
}

/* tensors: each with a source in place of its data. */
static int collect(const struct rb_graph *graph, const Rb__Model *model, struct source *sources,
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
        sources[n] = (struct source){value->type.dtype, value->data};
        tensors[n] = (struct rb_safetensor){value->name, value->type, &sources[n]};
        n++;
    }
    return 0;
}

static int read_weights(const struct rb_graph *graph, const char *key, const char *path,
                        struct rb_pretrained *pretrained, struct source *sources, Rb__Model *model,
                        struct rb_buffer *notes, struct rb_why *why)
{
    struct rb_match match;
    int err = rb_pretrained_open(path, pretrained, why);

    if (!err)
        err = rb_match_open(graph, model, pretrained, &match, why);
    if (err)
        return rb_why_add(why, err, "%s: %s", key, path);
    for (size_t i = 0; i < model->n_variables; i++)
        if (match.from[i] >= 0) {
            const struct rb_safetensor *tensor = pretrained->tensors[match.from[i]];

            sources[i] = (struct source){tensor->type.dtype, tensor->data};
        }
    rb_match_aliases(graph, &match, model);
    rb_match_say(&match, key, notes);
    rb_match_done(&match);
    return 0;
}

/* ---- Writing ---- */

/* Files keep elements at any address. */
static float element(enum rb_dtype dtype, const unsigned char *at)
{
    uint16_t half;
    double wide;

    if (dtype == RB_F64) {
        memcpy(&wide, at, sizeof(wide));
        return (float)wide;
    }
    memcpy(&half, at, sizeof(half));
    return dtype == RB_F16 ? rb_dtype_half(half) : rb_dtype_bfloat(half);
}

static void add_contents(const struct rb_tensor_type *type, const struct source *source,
                         struct rb_buffer *out)
{
    size_t n = (size_t)rb_tensor_elements(type), width = rb_dtype_size(source->dtype);

    if (source->dtype == type->dtype) {
        rb_buffer_add(out, source->data, bytes_of(type));
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float x = element(source->dtype, (const unsigned char *)source->data + i * width);

        rb_buffer_add(out, &x, sizeof(x));
    }
}

static void write_all(struct rb_safetensor *tensors, size_t n, struct rb_buffer *out)
{
    size_t size = 0;

    for (size_t i = 0; i < n; i++)
        size += bytes_of(&tensors[i].type);
    rb_safetensors_header(tensors, (int)n, out);
    rb_buffer_reserve(out, size);
    for (size_t i = 0; i < n; i++)
        add_contents(&tensors[i].type, tensors[i].data, out);
}

int rb_initial_weights(const struct rb_graph *graph, const char *key, const char *weights,
                       Rb__Model *model, struct rb_buffer *ret_safetensors,
                       struct rb_buffer *ret_notes, struct rb_why *why)
{
    RB_CLEANUP(rb_freep)
    struct rb_safetensor *tensors = rb_alloc(sizeof(*tensors) * (model->n_variables + 1));
    RB_CLEANUP(rb_freep)
    struct source *sources = rb_alloc(sizeof(*sources) * (model->n_variables + 1));
    struct rb_pretrained pretrained = {0};
    int err = collect(graph, model, sources, tensors, why);

    if (!err && weights)
        err = read_weights(graph, key, weights, &pretrained, sources, model, ret_notes, why);
    else if (!err)
        rb_match_aliases(graph, NULL, model);
    if (!err)
        write_all(tensors, model->n_variables, ret_safetensors);
    rb_pretrained_close(&pretrained);
    return err;
}
