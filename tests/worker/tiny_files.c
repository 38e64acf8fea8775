/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny job as files: its data, its weights, its messages. */
#include "tests/worker/tiny.h"

#include "base/arena.h"
#include "base/buffer.h"
#include "base/file.h"
#include "plan/replicas.h"
#include "plan/schedule_pipeline.h"
#include "proto/dtype.h"
#include "proto/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int err)
{
    if (err) {
        fprintf(stderr, "tiny: %s\n", rb_error_text(err));
        abort();
    }
}

static uint32_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*state >> 33);
}

static void write_npy(const char *folder, const char *name, const char *descr, const char *shape,
                      const void *data, size_t bytes)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    struct rb_buffer out = {0};
    uint16_t size = 118; /* 10 bytes of preamble and this are 128 */
    RB_CLEANUP(rb_freep)
    char *header =
        rb_format("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape);

    rb_buffer_add(&out, "\x93NUMPY\x01\x00", 8);
    rb_buffer_add(&out, &size, sizeof size);
    rb_buffer_format(&out, "%-117s\n", header);
    rb_buffer_add(&out, data, bytes);
    must(rb_file_write(path, out.data, out.size, NULL));
    rb_buffer_done(&out);
}

struct points {
    int64_t samples, inputs, classes;
    const char *shape;
    double bad_feature;
    bool bad_once;
    bool no_targets;
};

/* Points around one centre a class. */
static void write_data(const char *folder, const char *prefix, const struct points *how,
                       uint64_t seed)
{
    RB_CLEANUP(rb_freep) float *x = rb_alloc((size_t)(how->samples * how->inputs) * sizeof *x);
    RB_CLEANUP(rb_freep) int64_t *y = rb_alloc((size_t)how->samples * sizeof *y);
    RB_CLEANUP(rb_freep) char *features = rb_format("%sfeatures.npy", prefix);
    RB_CLEANUP(rb_freep) char *targets = rb_format("%stargets.npy", prefix);
    RB_CLEANUP(rb_freep) char *rows = rb_format("(%lld, %s)", (long long)how->samples, how->shape);
    RB_CLEANUP(rb_freep) char *row = rb_format("(%lld,)", (long long)how->samples);

    for (int64_t i = 0; i < how->samples; i++) {
        y[i] = how->no_targets ? -100 : (int64_t)(draw(&seed) % (uint32_t)how->classes);
        for (int64_t k = 0; k < how->inputs; k++)
            x[i * how->inputs + k] = (float)(draw(&seed) % 1000) / 500.0f - 1.0f +
                                     (k % how->classes == y[i] ? 1.0f : 0.0f);
        if (how->bad_feature != 0 && (!i || !how->bad_once))
            x[i * how->inputs] = (float)how->bad_feature;
    }
    write_npy(folder, features, "<f4", rows, x, (size_t)(how->samples * how->inputs) * sizeof *x);
    write_npy(folder, targets, "<i8", row, y, (size_t)how->samples * sizeof *y);
}

void tiny_write_data(const char *folder, const char *prefix, int64_t samples, int64_t inputs,
                     const char *shape, int64_t classes, uint64_t seed)
{
    struct points how = {samples, inputs, classes, shape, 0, false};

    write_data(folder, prefix, &how, seed);
}

static void write_weights(const char *folder, const Rb__Model *model)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/weights.safetensors", folder);
    RB_CLEANUP(rb_freep)
    struct rb_safetensor *tensors = rb_alloc(model->n_variables * sizeof *tensors);
    float *w = rb_alloc((size_t)model->state_elements * sizeof *w);
    int64_t mask[5] = {3, 1, 4, 1, 5};
    struct rb_buffer out = {0};
    uint64_t seed = 99;

    for (size_t v = 0; v < model->n_variables; v++) {
        const Rb__Variable *variable = model->variables[v];
        bool fixed = variable->role == RB__VARIABLE__ROLE__FIXED;

        tensors[v] = (struct rb_safetensor){
            .name = variable->name,
            .type = {(enum rb_dtype)variable->dtype, (int)variable->n_dims, {0}},
            .data = fixed ? (void *)mask : (void *)(w + variable->offset),
        };
        memcpy(tensors[v].type.dim, variable->dims, variable->n_dims * sizeof *variable->dims);
        for (uint64_t i = 0; !fixed && i < variable->elements; i++)
            w[variable->offset + i] = ((float)(draw(&seed) % 2000) / 1000.0f - 1.0f) * 0.3f;
    }
    rb_safetensors_header(tensors, (int)model->n_variables, &out);
    for (size_t i = 0; i < model->n_variables; i++)
        rb_buffer_add(&out, tensors[i].data,
                      (size_t)rb_tensor_elements(&tensors[i].type) *
                          rb_dtype_size(tensors[i].type.dtype));
    must(rb_file_write(path, out.data, out.size, NULL));
    rb_buffer_done(&out);
    free(w);
}

void tiny_write_message(const char *folder, const char *name, const ProtobufCMessage *message)
{
    RB_CLEANUP(rb_freep) char *path = rb_format("%s/%s", folder, name);
    size_t size = protobuf_c_message_get_packed_size(message);
    RB_CLEANUP(rb_freep) uint8_t *bytes = rb_alloc(size);

    protobuf_c_message_pack(message, bytes);
    must(rb_file_write(path, bytes, size, NULL));
}

void tiny_write(const char *folder, const struct tiny_options *options, uint32_t ranks)
{
    Rb__Model *model = tiny_model(folder, options);
    struct points how = {
        .samples = options->samples,
        .inputs = TINY_INPUTS,
        .classes = TINY_CLASSES,
        .shape = "8",
        .bad_feature = options->bad_feature,
        .bad_once = options->bad_once,
        .no_targets = options->no_targets,
    };

    write_data(folder, "", &how, 1);
    how.samples = options->eval_samples;
    if (options->eval_samples)
        write_data(folder, "eval-", &how, 2);
    write_weights(folder, model);
    tiny_write_message(folder, "model", &model->base);
    for (uint32_t r = 1; r <= ranks && (!options->lap || r <= options->stages); r++) {
        uint32_t stages = rb_pipeline_stages(options->stages, r);
        Rb__Plan *plan = NULL;
        RB_CLEANUP(rb_freep) char *name = rb_format("plan.%u", r);

        if (!stages)
            plan = tiny_plan(model, r);
        else if (rb_pipeline_plan(model, r, stages, &plan, NULL))
            abort();
        plan->has_steals = plan->steals = options->steals;
        plan->has_recomputes = plan->recomputes = options->both && r % 2;
        rb_replicas_place(&(struct rb_replicas){options->replicas, model->n_blocks, r, NULL}, model,
                          plan);
        tiny_write_message(folder, name, &plan->base);
        rb__plan__free_unpacked(plan, NULL);
    }
    rb__model__free_unpacked(model, NULL);
}

void tiny_place_open(const struct tiny_options *options, struct tiny_place *ret)
{
    *ret = (struct tiny_place){.folder = "/tmp/rubato-tiny-XXXXXX"};
    if (!mkdtemp(ret->folder))
        abort();
    ret->model = tiny_model(ret->folder, options);
    tiny_write(ret->folder, options, 1);
}

void tiny_place_close(struct tiny_place *place)
{
    RB_CLEANUP(rb_freep) char *command = rb_format("rm -r %s", place->folder);

    rb__model__free_unpacked(place->model, NULL);
    if (system(command) != 0)
        abort();
}
