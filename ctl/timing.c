/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/timing.h"

#include "worker/timing.h"

static const struct rb_timing thorough = {
    .warm = 2, .runs = 15, .least = 3, .most_ns = UINT64_C(10000000000)};

int rb_timing_take(struct rb_device *device, struct rb_forward *forward, bool sums,
                   struct rb_profile_speed *ret_speed, struct rb_profile **ret_profile,
                   struct rb_why *why)
{
    const Rb__Model *model = forward->compiled.model;
    int32_t *into = NULL;
    int err = rb_forward_open(device, forward, why);

    if (!err)
        err = rb_profile_measure(device, model->programs[0], ret_speed, why);
    if (!err && sums)
        into = rb_device_alloc(device, (size_t)model->state_elements * sizeof *into + 64);
    if (!err && sums && !into)
        err = rb_why_set(why, RB_ENOMEM, "no memory for sums");
    if (err)
        return err;
    *ret_profile = rb_timing_run(model, model->programs[0], forward->program, into, &thorough);
    rb_device_free(device, into);
    return 0;
}
