/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/model.h"

#include "base/arena.h"
#include "base/file.h"
#include "worker/stages/flight.h"
#include "worker/join/wire.h"
#include "worker/lanes.h"
#include "worker/stages/lap.h"
#include "worker/step/views.h"
#include "worker/step/vote.h"

#include <stdlib.h>
#include <string.h>

static int read_message(const char *path, Rb__Model **ret_message, struct rb_why *why)
{
    struct rb_map map;
    int err = rb_map_open(path, &map, why);

    if (err)
        return err;
    *ret_message = rb__model__unpack(NULL, map.size, map.data);
    rb_map_close(&map);
    if (!*ret_message)
        return rb_why_set(why, RB_EINVAL, "%s is no model", path);
    return rb_model_check(*ret_message, why);
}

/* The first file whose contents have changed since the job was submitted, or the first of all. */
static const char *find_changed(const Rb__Source *message, const struct rb_source *source)
{
    size_t n = rb_source_files(source);

    for (size_t i = 0; i < n && n == message->n_contents; i++) {
        struct rb_source_file file = rb_source_file(source, i);

        if (file.hash != message->contents[i])
            return file.path;
    }
    return message->path[0];
}

static int check_source(const Rb__Source *message, const struct rb_source *source,
                        struct rb_why *why)
{
    const int64_t samples = rb_source_info(source)->samples;

    if (samples != message->samples || message->samples < 1)
        return rb_why_set(why, RB_EINVAL,
                          "the data at %s have %lld samples, they had %lld when the job was "
                          "submitted",
                          find_changed(message, source), (long long)samples,
                          (long long)message->samples);
    if (message->has_content && rb_source_hash(source) != message->content)
        return rb_why_set(why, RB_EINVAL,
                          "%s does not hold what it did when the job was submitted; expected the "
                          "same data on all nodes until the job is over",
                          find_changed(message, source));
    return 0;
}

static int open_source(const Rb__Source *message, bool floats, struct rb_source **ret_source,
                       struct rb_why *why)
{
    struct rb_source_input_options inputs[RB_SOURCE_INPUTS] = {0};
    struct rb_source_options options = {
        .path = (const char *const *)message->path,
        .n_path = message->n_path,
        .targets = (const char *const *)message->targets,
        .n_targets = message->n_targets,
        .inputs = inputs,
        .n_inputs = message->n_inputs,
        .format = message->format,
        .seq_len = message->seq_len,
        .floats = floats,
        .unscanned = true, /* they were when the job was submitted */
    };
    int err;

    for (size_t i = 0; i < message->n_inputs && i < RB_SOURCE_INPUTS; i++)
        inputs[i] = (struct rb_source_input_options){
            .name = message->inputs[i]->name,
            .path = (const char *const *)message->inputs[i]->path,
            .n_path = message->inputs[i]->n_path,
            .floats = message->inputs[i]->floats,
        };
    err = rb_source_open(&options, ret_source, why);
    if (err)
        return err;
    return check_source(message, *ret_source, why);
}

struct rb_fixed rb_model_summand(struct rb_model *model, const Rb__Contribution *contribution,
                                 uint32_t microbatch)
{
    uint32_t v = contribution->variable;
    const Rb__Variable *variable = model->message->variables[v];
    bool statistic = variable->role == RB__VARIABLE__ROLE__STATISTIC;

    return (struct rb_fixed){
        .sum = model->local + variable->offset + contribution->first,
        .fresh = model->fresh[v],
        .weight = statistic
                      ? rb_exponent_statistic(variable->momentum, model->microbatches, microbatch)
                      : 1,
        .exponent = model->exponents[v].exponent,
        .limit = model->limits[v],
        .largest = &model->largest[v],
        .overflow = &model->overflow[v],
    };
}

size_t rb_model_sums_bytes(const struct rb_model *model)
{
    size_t sums = (size_t)model->message->state_elements * sizeof(int32_t),
           line = RB_MODEL_SUMS_END;

    return (sums + line - 1) / line * line + line;
}

int32_t *rb_model_sums(const struct rb_model *model)
{
    return rb_device_alloc_shown(model->device, rb_model_sums_bytes(model));
}

static int get_memory(struct rb_model *model, struct rb_why *why)
{
    const Rb__Model *message = model->message;
    size_t constants = message->constants.len;
    int err = rb_state_open(message, model->device, &model->state, why);

    if (err)
        return err;
    model->constants = rb_device_alloc(model->device, constants + 64);
    model->local = rb_model_sums(model);
    model->reduced = rb_model_sums(model);
    model->largest =
        rb_device_alloc(model->device, (message->n_variables + 1) * sizeof *model->largest);
    model->overflow =
        rb_device_alloc(model->device, (message->n_variables + 1) * sizeof *model->overflow);
    model->squares =
        rb_device_alloc(model->device, (message->n_blocks + 1) * sizeof *model->squares);
    model->results =
        rb_device_alloc(model->device, (model->microbatches + 1) * sizeof *model->results);
    if (!model->constants || !model->local || !model->reduced || !model->largest ||
        !model->overflow || !model->squares || !model->results)
        return rb_why_set(why, RB_ENOMEM, "no memory: sums take %zu bytes",
                          2 * rb_model_sums_bytes(model));
    if (constants)
        memcpy(model->constants, message->constants.data, constants);
    rb_device_push(model->device, model->constants, constants);
    model->runners = rb_alloc(message->n_programs * sizeof *model->runners);
    for (size_t i = 0; i < message->n_programs; i++)
        model->runners[i].message = message->programs[i];
    model->exponents = rb_alloc(message->n_variables * sizeof *model->exponents);
    model->limits = rb_alloc(message->n_variables * sizeof *model->limits);
    model->fresh = rb_alloc(message->n_variables * sizeof *model->fresh);
    model->record = rb_alloc(rb_vote_bytes(&(struct rb_vote_shape){
        model->microbatches, (uint32_t)message->n_variables, message->n_blocks}));
    model->applied.entry = rb_alloc(rb_wire_entry_bytes(model));
    for (size_t v = 0; v < message->n_variables; v++)
        model->limits[v] =
            rb_exponent_limit((uint64_t)model->microbatches * message->variables[v]->uses);
    return 0;
}

static int check_class(const struct rb_model *model, const char *kind, int index,
                       struct rb_why *why)
{
    struct rb_device_about about;
    int err = rb_device_describe(kind, index, &about, why);

    if (err || strcmp(about.numeric_class, model->message->numeric_class) == 0)
        return err;
    return rb_why_set(why, RB_EREFUSED,
                      "this device computes as \"%s\", the job as \"%s\": its bits would differ",
                      about.numeric_class, model->message->numeric_class);
}

static int load(struct rb_model *model, const char *path, const char *kind, int index,
                struct rb_why *why)
{
    int err = read_message(path, &model->message, why);
    bool floats = !err && rb_batch_takes_floats(model->message);

    if (!err)
        err = check_class(model, kind, index, why);
    if (!err)
        err = rb_device_open(kind, index, &model->device, why);
    if (!err)
        err = open_source(model->message->train, floats, &model->train, why);
    if (!err && model->message->eval)
        err = open_source(model->message->eval, floats, &model->eval, why);
    if (err)
        return err;
    model->microbatches = rb_batch_count(model->message->global_batch, model->message->micro_batch);
    return get_memory(model, why);
}

int rb_model_load(const char *path, const char *kind, int index, struct rb_model **ret_model,
                  struct rb_why *why)
{
    struct rb_model *model = rb_alloc(sizeof *model);
    int err;

    model->state.level = model->kept = model->pending.level = model->applied.level = -1;
    err = load(model, path, kind, index, why);
    if (err) {
        rb_model_free(model);
        return err;
    }
    *ret_model = model;
    return 0;
}

void rb_model_hold(struct rb_model *model, const uint8_t *holds)
{
    const Rb__Model *message = model->message;

    for (size_t b = 0, end; b < message->n_blocks; b = end) {
        end = b + 1;
        if (holds[b] || !model->state.held[b])
            continue;
        while (end < message->n_blocks && !holds[end] && model->state.held[end])
            end++;
        rb_device_discard(model->device, model->reduced + message->blocks[b]->first,
                          (size_t)(message->blocks[end - 1]->first +
                                   message->blocks[end - 1]->count - message->blocks[b]->first) *
                              sizeof *model->reduced);
    }
    rb_state_hold(&model->state, message, holds);
}

int rb_model_shift(struct rb_model *model, const uint8_t *holds, struct rb_why *why)
{
    struct rb_state *state = &model->state;
    int err = 0;

    pthread_mutex_lock(&state->window->lock);
    for (size_t b = 0; b < state->blocks; b++)
        if (holds[b] && !rb_held_follows(state->held[b]))
            err = rb_why_set(why, RB_EINTERNAL, "block %zu is not here at the flip", b);
        else if (holds[b])
            state->held[b] = RB_HELD;
        else if (state->held[b])
            state->held[b] = RB_HELD_LINGERS;
    pthread_mutex_unlock(&state->window->lock);
    return err;
}

void rb_model_settle(struct rb_model *model)
{
    struct rb_state *state = &model->state;
    RB_CLEANUP(rb_freep) uint8_t *stay = rb_alloc(state->blocks + 1);
    bool any = false;

    for (size_t b = 0; b < state->blocks; b++) {
        stay[b] = rb_held_follows(state->held[b]) ? state->held[b] : RB_HELD_NOT;
        any |= stay[b] != state->held[b];
    }
    if (any)
        rb_model_hold(model, stay);
}

void rb_model_free(struct rb_model *model)
{
    if (!model)
        return;
    rb_lap_free(model);
    rb_flights_free(model);
    rb_lanes_close(model);
    for (size_t i = 0; model->runners && i < model->message->n_programs; i++)
        rb_runner_done(&model->runners[i]);
    free(model->runners);
    free(model->chunks);
    free(model->exponents);
    free(model->limits);
    free(model->fresh);
    free(model->record);
    free(model->applied.entry);
    rb_views_free(model->views);
    if (model->device) {
        void *memory[] = {model->arena,   model->constants, model->local,   model->reduced,
                          model->largest, model->overflow,  model->squares, model->results};

        rb_state_done(&model->state);
        for (size_t i = 0; i < RB_COUNT(memory); i++)
            if (memory[i])
                rb_device_free(model->device, memory[i]);
        rb_device_close(model->device);
    }
    if (model->train)
        rb_source_close(model->train);
    if (model->eval)
        rb_source_close(model->eval);
    if (model->message)
        rb__model__free_unpacked(model->message, NULL);
    free(model);
}
