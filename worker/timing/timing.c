/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/timing/timing_inside.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "worker/model.h"
#include "worker/program/program.h"

#include <string.h>

/* A submit waits for this. */
static const struct rb_timing quick = {
    .warm = 1, .runs = 7, .least = 1, .most_ns = 700000000, .sums = true};

static uint32_t next_random(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

void rb_timing_fill(const Rb__Program *program, struct rb_program *ready)
{
    uint32_t seed = 1;

    for (size_t i = 0; i < program->n_tensors; i++) {
        const Rb__Tensor *tensor = program->tensors[i];
        float *data;
        int64_t n = 1;

        if (tensor->space != RB__TENSOR__SPACE__INPUT || tensor->dtype != RB_F32)
            continue; /* other types stay zeros */
        data = rb_program_input(ready, (int)tensor->offset);
        for (size_t k = 0; k < tensor->n_dims; k++)
            n *= tensor->dims[k];
        for (int64_t k = 0; k < n; k++)
            data[k] = (float)((int32_t)next_random(&seed)) * 0x1p-31f;
    }
}

/* As large as weights are, so that no kernel meets numbers that are too small to be fast. */
static void fill_weights(const Rb__Model *model, float *state)
{
    uint32_t seed = 1;

    for (uint64_t i = 0; i < model->state_elements; i++)
        state[i] = (float)(next_random(&seed) >> 8) * 0x1p-28f;
}

/* ---- Memory -----------------------------------------------------------------------------------*/

static int open_memory(struct rb_timing_place *place, const Rb__Model *model, struct rb_why *why)
{
    struct rb_program_memory *memory = &place->memory;
    struct rb_device *device = place->device;
    size_t state = (size_t)model->state_elements * sizeof(float) + 64;

    place->sums = rb_device_alloc(device, state);
    place->largest = rb_device_alloc(device, sizeof *place->largest);
    place->overflow = rb_device_alloc(device, sizeof *place->overflow);
    place->constants = rb_device_alloc(device, model->constants.len + 64);
    memory->constants = place->constants;
    memory->state = rb_device_alloc(device, state);
    memory->fixed = rb_device_alloc(device, (size_t)model->fixed_bytes + 64);
    memory->arena = rb_device_alloc(device, (size_t)model->programs[0]->arena_bytes + 64);
    if (!memory->state || !memory->fixed || !memory->arena || !place->constants || !place->sums ||
        !place->largest || !place->overflow)
        return rb_why_set(why, RB_ENOMEM, "no memory for a batch of %u", model->programs[0]->batch);
    fill_weights(model, memory->state);
    rb_device_push(device, memory->state, state);
    if (model->constants.len)
        memcpy(place->constants, model->constants.data, model->constants.len);
    rb_device_push(device, place->constants, model->constants.len);
    return 0;
}

static int open_place(struct rb_timing_place *place, const Rb__Model *model, struct rb_why *why)
{
    const Rb__Program *program = model->programs[0];
    int err = open_memory(place, model, why);

    if (!err)
        err = rb_program_prepare(place->device, model, program, &place->memory, &place->ready, why);
    if (!err)
        err = rb_marks_new(place->device, program->n_instructions + 1, &place->marks, why);
    return err;
}

static void close_place(struct rb_timing_place *place)
{
    void *const memory[] = {place->memory.state, place->memory.fixed, place->memory.arena,
                            place->constants,    place->sums,         place->largest,
                            place->overflow};

    rb_marks_free(place->marks);
    rb_program_free(place->ready);
    for (size_t i = 0; i < RB_COUNT(memory); i++)
        rb_device_free(place->device, memory[i]);
}

/* ---- Runs -------------------------------------------------------------------------------------*/

struct rb_fixed rb_timing_summand(const struct rb_timing_place *place, const Rb__Model *model,
                                  const Rb__Contribution *contribution)
{
    const Rb__Variable *variable = model->variables[contribution->variable];

    return (struct rb_fixed){
        .sum = place->sums + variable->offset,
        .weight = 1,
        .exponent = 8, /* keeps made-up gradients far from the limit */
        .limit = INT32_MAX,
        .largest = place->largest,
        .overflow = place->overflow,
    };
}

static void add_contribution(const struct rb_timing_place *place, const Rb__Model *model,
                             const Rb__Contribution *contribution)
{
    struct rb_fixed into = rb_timing_summand(place, model, contribution);

    rb_program_add(place->ready, (int)contribution->tensor, &into);
}

void rb_timing_run(const struct rb_timing_place *place, const Rb__Model *model, bool sums,
                   bool marked)
{
    const Rb__Program *program = model->programs[0];
    const struct rb_key key = {1, 1, 0};
    size_t next = 0;

    if (marked)
        rb_marks_set(place->marks, 0);
    for (size_t i = 0; i < program->n_instructions; i++) {
        rb_program_step(place->ready, (int)i, &key);
        while (sums && next < program->n_contributions &&
               program->contributions[next]->after <= i + 1)
            add_contribution(place, model, program->contributions[next++]);
        if (marked)
            rb_marks_set(place->marks, i + 1);
    }
}

static void take(const struct rb_timing_place *place, size_t instructions,
                 struct rb_profile *profile)
{
    for (size_t i = 0; i < instructions; i++)
        rb_profile_add(profile, i, rb_marks_between(place->marks, i, i + 1));
    rb_profile_end(profile);
}

static struct rb_profile *run_all(const struct rb_timing_place *place, const Rb__Model *model,
                                  const struct rb_timing *how)
{
    const Rb__Program *program = model->programs[0];
    struct rb_profile *profile = rb_profile_new(program);
    uint64_t end = rb_clock_ns() + how->most_ns;

    rb_timing_fill(program, place->ready);
    rb_program_start(place->ready);
    rb_program_defer(place->ready, how->sums);
    for (int i = 0; i < how->warm; i++)
        rb_timing_run(place, model, how->sums, false);
    for (int i = 0; i < how->runs && (i < how->least || rb_clock_ns() < end); i++) {
        if (rb_device_tapes(place->device))
            rb_timing_run(place, model, how->sums, false);
        rb_timing_run(place, model, how->sums, true);
        take(place, program->n_instructions, profile);
    }
    return profile;
}

static int time_step(const struct rb_timing_place *place, const Rb__Model *model,
                     const struct rb_timing *how, struct rb_timing_step *ret_step,
                     struct rb_why *why)
{
    struct rb_timing_lanes lanes;
    int err = rb_timing_lanes_open(place, model, &lanes, why);

    *ret_step = (struct rb_timing_step){0};
    if (!err) {
        rb_timing_together(&lanes, how->most_ns, ret_step);
        rb_timing_update(&lanes, how->most_ns, ret_step);
    }
    rb_timing_lanes_close(&lanes);
    return err;
}

int rb_timing_model(struct rb_device *device, const Rb__Model *model, const struct rb_timing *how,
                    struct rb_profile **ret_profile, struct rb_timing_step *ret_step,
                    struct rb_why *why)
{
    struct rb_timing_place place = {.device = device};
    struct rb_profile *profile = NULL;
    int err = open_place(&place, model, why);

    if (!err) {
        profile = run_all(&place, model, how);
        err = ret_step ? time_step(&place, model, how, ret_step, why) : 0;
        err = err ? err : rb_device_check(device, why);
    }
    close_place(&place);
    if (err)
        rb_profile_free(profile);
    else
        *ret_profile = profile;
    return err;
}

/* ---- Between host and device ------------------------------------------------------------------*/

static void keep_best(uint64_t start, double *best)
{
    double ns = (double)(rb_clock_ns() - start);

    *best = *best > 0 && *best < ns ? *best : ns;
}

int rb_timing_ways(struct rb_device *device, struct rb_timing_ways *ret_ways, struct rb_why *why)
{
    enum { BYTES = 16 << 20, ROUNDS = 5 };
    char *memory = rb_device_alloc(device, 2 * (size_t)BYTES);
    double in = 0, out = 0, copy = 0;

    *ret_ways = (struct rb_timing_ways){0};
    if (!memory)
        return rb_why_set(why, RB_ENOMEM, "no memory to measure copies with");
    memset(memory, 1, 2 * (size_t)BYTES);
    for (int i = 0; rb_device_tapes(device) && i < ROUNDS; i++) {
        uint64_t start = rb_clock_ns();

        rb_device_push(device, memory, BYTES);
        rb_device_pull(device, memory, 1); /* the push may only have been queued */
        keep_best(start, &in);
        start = rb_clock_ns();
        rb_device_pull(device, memory, BYTES);
        keep_best(start, &out);
        start = rb_clock_ns();
        memcpy(memory + BYTES, memory, BYTES);
        keep_best(start, &copy);
    }
    if (copy > 0)
        *ret_ways =
            (struct rb_timing_ways){1e9 * 2.0 * BYTES / copy, 1e9 * BYTES / (in > out ? in : out)};
    rb_device_free(device, memory);
    return rb_device_check(device, why);
}

/* ---- A file ----------------------------------------------------------------------------------*/

static int read_model(const char *path, Rb__Model **ret, struct rb_why *why)
{
    struct rb_map map;
    int err = rb_map_open(path, &map, why);

    if (err)
        return err;
    *ret = rb__model__unpack(NULL, map.size, map.data);
    rb_map_close(&map);
    if (!*ret || !(*ret)->n_programs)
        return rb_why_set(why, RB_EINVAL, "%s: it cannot be read as a model", path);
    return rb_model_check(*ret, why);
}

static Rb__Profile *new_message(const char *kind, const Rb__Program *program,
                                const struct rb_profile *profile,
                                const struct rb_profile_speed *speed,
                                const struct rb_timing_ways *ways,
                                const struct rb_timing_step *step)
{
    Rb__Profile *message = rb_alloc(sizeof *message);

    rb__profile__init(message);
    message->kind = rb_string(kind);
    message->flops = 1e9 * speed->flops;
    message->bytes = step->copied > 0 ? step->copied : 1e9 * speed->bytes;
    message->has_host_bytes = message->has_crossing = ways->host > 0;
    message->host_bytes = ways->host;
    message->crossing = ways->crossing;
    message->has_lanes = message->has_together = step->lanes > 1;
    message->lanes = step->lanes;
    message->together = step->together;
    message->has_update = step->update > 0;
    message->update = step->update;
    message->seconds = rb_alloc((program->n_instructions + 1) * sizeof *message->seconds);
    for (size_t i = 0; i < program->n_instructions; i++)
        message->seconds[message->n_seconds++] = (float)(rb_profile_ns(profile, i) / 1e9);
    return message;
}

static int time_model(struct rb_device *device, const char *kind, const Rb__Model *model,
                      Rb__Profile **ret, struct rb_why *why)
{
    struct rb_profile *profile = NULL;
    struct rb_profile_speed speed;
    struct rb_timing_ways ways;
    struct rb_timing_step step;
    int err = rb_profile_quickly(device, &speed, why);

    if (!err)
        err = rb_timing_ways(device, &ways, why);
    if (!err)
        err = rb_timing_model(device, model, &quick, &profile, &step, why);
    if (!err)
        *ret = new_message(kind, model->programs[0], profile, &speed, &ways, &step);
    rb_profile_free(profile);
    return err;
}

int rb_timing_of_file(const char *kind, int index, const char *path, Rb__Profile **ret_profile,
                      struct rb_why *why)
{
    struct rb_device *device = NULL;
    Rb__Model *model = NULL;
    int err = read_model(path, &model, why);

    if (!err)
        err = rb_device_open(kind, index, &device, why);
    if (!err)
        err = time_model(device, kind, model, ret_profile, why);
    rb_device_close(device);
    if (model)
        rb__model__free_unpacked(model, NULL);
    return err;
}
