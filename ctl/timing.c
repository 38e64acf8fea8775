/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/timing.h"

#include "base/clock.h"

#include <inttypes.h>

enum { WARM = 2, RUNS = 15, LEAST = 3 };
static const uint64_t most_ns = UINT64_C(10000000000); /* then LEAST runs are enough */

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
        for (int64_t k = 0; k < n; k++) {
            seed = seed * 1664525u + 1013904223u;
            data[k] = (float)((int32_t)seed) * 0x1p-31f;
        }
    }
}

static void after_instruction(int instruction, void *context)
{
    rb_profile_instruction(context, instruction);
}

static void measure(const struct rb_forward *forward, struct rb_profile *profile)
{
    const struct rb_key key = {1, 1, 0};
    uint64_t end = rb_clock_ns() + most_ns;

    for (int i = 0; i < WARM; i++)
        rb_program_run(forward->program, &key, NULL, NULL, NULL);
    for (int i = 0; i < RUNS && (i < LEAST || rb_clock_ns() < end); i++) {
        rb_profile_pass(profile);
        rb_program_run(forward->program, &key, NULL, after_instruction, profile);
        rb_profile_end(profile);
    }
}

int rb_timing_take(struct rb_device *device, struct rb_forward *forward,
                   struct rb_profile_speed *ret_speed, struct rb_profile **ret_profile,
                   struct rb_why *why)
{
    int err = rb_forward_open(device, forward, why);

    if (!err)
        err = rb_profile_measure(device, forward->compiled.model->programs[0], ret_speed, why);
    if (err)
        return err;
    fill_inputs(forward->compiled.model->programs[0], forward->program);
    *ret_profile = rb_profile_new(forward->compiled.model->programs[0]);
    measure(forward, *ret_profile);
    return 0;
}
