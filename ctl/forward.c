/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/forward.h"

#include "base/arena.h"
#include "proto/safetensors.h"

#include <string.h>

static int load_weights(const struct rb_compiled *compiled, struct rb_program_memory *memory,
                        struct rb_why *why)
{
    RB_CLEANUP(rb_freep) struct rb_safetensor *tensors = NULL;
    const Rb__Model *model = compiled->model;
    int n = 0, err;

    err = rb_safetensors_read(compiled->weights.data, compiled->weights.size, &tensors, &n, why);
    for (size_t v = 0; !err && v < model->n_variables; v++) {
        const Rb__Variable *variable = model->variables[v];
        bool fixed = variable->role == RB__VARIABLE__ROLE__FIXED;
        size_t size = (size_t)variable->elements * rb_dtype_size((enum rb_dtype)variable->dtype);
        int i = 0;

        while (i < n && strcmp(tensors[i].name, variable->name) != 0)
            i++;
        if (i == n)
            return rb_why_set(why, RB_EINTERNAL, "weights of %s are missing", variable->name);
        memcpy(fixed ? (char *)memory->fixed + variable->offset
                     : (char *)(memory->state + variable->offset),
               tensors[i].data, size);
    }
    return err;
}

int rb_forward_open(struct rb_device *device, struct rb_forward *forward, struct rb_why *why)
{
    const Rb__Model *model = forward->compiled.model;
    const Rb__Program *program = model->programs[0];
    struct rb_program_memory *memory = &forward->memory;
    int err;

    memory->state = rb_device_alloc(device, (size_t)model->state_elements * sizeof(float) + 64);
    memory->fixed = rb_device_alloc(device, (size_t)model->fixed_bytes + 64);
    memory->arena = rb_device_alloc(device, (size_t)program->arena_bytes + 64);
    memory->constants = model->constants.data;
    if (!memory->state || !memory->fixed || !memory->arena)
        return rb_why_set(why, RB_ENOMEM, "no memory for a batch of %u", program->batch);
    err = load_weights(&forward->compiled, memory, why);
    return err ? err : rb_program_prepare(device, model, program, memory, &forward->program, why);
}

int rb_forward_run(struct rb_device *device, struct rb_forward *forward, struct rb_why *why)
{
    const struct rb_key key = {0};
    int err = rb_program_run(forward->program, &key, NULL, NULL, NULL);

    return err ? rb_why_set(why, err, "the run failed") : rb_device_check(device, why);
}

void rb_forward_done(struct rb_device *device, struct rb_forward *forward)
{
    rb_program_free(forward->program);
    rb_device_free(device, forward->memory.state);
    rb_device_free(device, forward->memory.fixed);
    rb_device_free(device, forward->memory.arena);
    rb_compiled_done(&forward->compiled);
}
