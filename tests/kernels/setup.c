/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/setup.h"

#include "kernels/device.h"

#include <stddef.h>

int setup_core(void **state)
{
    return rb_device_open("cpu", 0, (struct rb_device **)state, NULL);
}

int setup_done(void **state)
{
    rb_device_close(*state);
    return 0;
}

float setup_draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int32_t)*seed) * 0x1p-31f;
}
