/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/timing.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "worker/model.h"

#include <string.h>

/* At a submit somebody waits for it. */
static const struct rb_timing quick = {.warm = 1, .runs = 7, .least = 1, .most_ns = 700000000};

static uint32_t next_random(uint32_t *seed)
{
    return *seed = *seed * 1664525u + 1013904223u;
}

static void fill_inputs(const Rb__Program *program, struct rb_program *ready)
{
    uint32_t seed = 1;

    for (size_t i = 0; i < program->n_tensors; i++) {
        const Rb__Tensor *tensor = program->tensors[i];
        float *data;
        int64_t n = 1;

        if (tensor->space != RB__TENSOR__SPACE__INPUT || tensor->dtype != RB_F32)
            continue; /* zeros as they are */
        data = rb_program_input(ready, (int)tensor->offset);
        for (size_t k = 0; k < tensor->n_dims; k++)
            n *= tensor->dims[k];
        for (int64_t k = 0; k < n; k++)
            data[k] = (float)((int32_t)next_random(&seed)) * 0x1p-31f;
    }
}

/* While a program is run. */
struct run {
    const Rb__Model *model;
    const Rb__Program *program;
    struct rb_program *ready;
    int32_t *sums;
    struct rb_profile *profile; /* NULL: it warms up */
    size_t next;                /* contribution */
    uint32_t largest;
    bool overflow;
};

static void add_contribution(struct run *run, const Rb__Contribution *contribution)
{
    const Rb__Variable *variable = run->model->variables[contribution->variable];
    struct rb_fixed into = {
        .sum = run->sums + variable->offset,
        .weight = 1,
        .exponent = 8, /* made-up gradients stay far from the limit */
        .limit = INT32_MAX,
        .largest = &run->largest,
        .overflow = &run->overflow,
    };

    rb_program_add(run->ready, (int)contribution->tensor, &into);
}

static void after_instruction(int instruction, void *context)
{
    struct run *run = context;
    Rb__Contribution *const *all = run->program->contributions;

    while (run->sums && run->next < run->program->n_contributions &&
           all[run->next]->after <= (uint32_t)instruction + 1)
        add_contribution(run, all[run->next++]);
    if (run->profile)
        rb_profile_instruction(run->profile, instruction);
}

static void run_once(struct run *run)
{
    const struct rb_key key = {1, 1, 0};

    run->next = 0;
    rb_program_run(run->ready, &key, NULL, after_instruction, run);
}

struct rb_profile *rb_timing_run(const Rb__Model *model, const Rb__Program *program,
                                 struct rb_program *ready, int32_t *sums,
                                 const struct rb_timing *how)
{
    struct run run = {.model = model, .program = program, .ready = ready, .sums = sums};
    uint64_t end = rb_clock_ns() + how->most_ns;

    fill_inputs(program, ready);
    rb_program_defer(ready, sums != NULL);
    for (int i = 0; i < how->warm; i++)
        run_once(&run);
    run.profile = rb_profile_new(program);
    for (int i = 0; i < how->runs && (i < how->least || rb_clock_ns() < end); i++) {
        rb_profile_pass(run.profile);
        run_once(&run);
        rb_profile_end(run.profile);
    }
    return run.profile;
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

/* As large as weights are: no kernel meets numbers that are too small to be quick. */
static void fill_weights(const Rb__Model *model, float *state)
{
    uint32_t seed = 1;

    for (uint64_t i = 0; i < model->state_elements; i++)
        state[i] = (float)(next_random(&seed) >> 8) * 0x1p-28f;
}

static int open_memory(struct rb_device *device, const Rb__Model *model,
                       struct rb_program_memory *memory, int32_t **ret_sums, struct rb_why *why)
{
    *ret_sums = rb_device_alloc(device, (size_t)model->state_elements * sizeof(int32_t) + 64);
    memory->state = rb_device_alloc(device, (size_t)model->state_elements * sizeof(float) + 64);
    memory->fixed = rb_device_alloc(device, (size_t)model->fixed_bytes + 64);
    memory->arena = rb_device_alloc(device, (size_t)model->programs[0]->arena_bytes + 64);
    memory->constants = model->constants.data;
    if (!memory->state || !memory->fixed || !memory->arena || !*ret_sums)
        return rb_why_set(why, RB_ENOMEM, "no memory for a batch of %u", model->programs[0]->batch);
    fill_weights(model, memory->state);
    return 0;
}

static Rb__Profile *new_message(const Rb__Program *program, const struct rb_profile *profile,
                                const struct rb_profile_speed *speed)
{
    Rb__Profile *message = rb_alloc(sizeof *message);

    rb__profile__init(message);
    message->flops = 1e9 * speed->flops;
    message->bytes = 1e9 * speed->bytes;
    message->seconds = rb_alloc((program->n_instructions + 1) * sizeof *message->seconds);
    for (size_t i = 0; i < program->n_instructions; i++)
        message->seconds[message->n_seconds++] = (float)(rb_profile_ns(profile, i) / 1e9);
    return message;
}

static int time_model(struct rb_device *device, const Rb__Model *model, Rb__Profile **ret,
                      struct rb_why *why)
{
    const Rb__Program *program = model->programs[0];
    struct rb_program_memory memory = {0};
    struct rb_program *ready = NULL;
    struct rb_profile_speed speed;
    int32_t *sums = NULL;
    int err = open_memory(device, model, &memory, &sums, why);

    if (!err)
        err = rb_program_prepare(device, model, program, &memory, &ready, why);
    if (!err)
        err = rb_profile_core(device, &speed, why);
    if (!err) {
        struct rb_profile *profile = rb_timing_run(model, program, ready, sums, &quick);

        *ret = new_message(program, profile, &speed);
        rb_profile_free(profile);
    }
    rb_program_free(ready);
    rb_device_free(device, memory.state);
    rb_device_free(device, memory.fixed);
    rb_device_free(device, memory.arena);
    rb_device_free(device, sums);
    return err;
}

int rb_timing_of_file(const char *kind, const char *path, Rb__Profile **ret_profile,
                      struct rb_why *why)
{
    struct rb_device *device = NULL;
    Rb__Model *model = NULL;
    int err = strcmp(kind, "cpu") == 0
                  ? read_model(path, &model, why)
                  : rb_why_set(why, RB_EUNSUPPORTED, "programs are timed on cores alone");

    if (!err)
        err = rb_device_open(kind, 0, &device, why);
    if (!err)
        err = time_model(device, model, ret_profile, why);
    if (device)
        rb_device_close(device);
    if (model)
        rb__model__free_unpacked(model, NULL);
    return err;
}
