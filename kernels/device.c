/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"

#include "kernels/backend.h"
#include "kernels/call.h"

#include <string.h>

static const struct rb_device_ops *const backends[] = {&rb_cpu_ops};

static const struct rb_device_ops *find(const char *kind)
{
    for (size_t i = 0; i < RB_COUNT(backends); i++)
        if (strcmp(backends[i]->kind, kind) == 0)
            return backends[i];
    return NULL;
}

int rb_device_open(const char *kind, int index, struct rb_device **ret_device, struct rb_why *why)
{
    const struct rb_device_ops *ops = find(kind);

    if (!ops)
        return rb_why_set(why, RB_EUNSUPPORTED, "no device of kind '%s' in this build", kind);
    return ops->open(index, ret_device, why);
}

void rb_device_close(struct rb_device *device)
{
    if (device)
        device->ops->close(device);
}

const char *rb_device_numeric_class(const char *kind)
{
    const struct rb_device_ops *ops = find(kind);

    return ops ? ops->numeric_class() : "unknown";
}

void *rb_device_alloc(struct rb_device *device, size_t bytes)
{
    return device->ops->alloc(device, bytes);
}

void rb_device_free(struct rb_device *device, void *memory)
{
    if (memory)
        device->ops->release(device, memory);
}

void rb_device_discard(struct rb_device *device, void *memory, size_t bytes)
{
    if (bytes)
        device->ops->discard(device, memory, bytes);
}

int rb_kernel_prepare(struct rb_device *device, const struct rb_call *call,
                      struct rb_kernel **ret_kernel, struct rb_why *why)
{
    int err = rb_call_check(call, why);

    return err ? err : device->ops->prepare(device, call, ret_kernel, why);
}

void rb_kernel_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                   const struct rb_key *key)
{
    kernel->run(kernel, in, out, key);
}

void rb_kernel_free(struct rb_kernel *kernel)
{
    if (kernel)
        kernel->free(kernel);
}

void rb_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, float weight,
                  int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    device->ops->fixed_add(device, sum, g, n, false, weight, exponent, limit, largest, overflow);
}

void rb_fixed_set(struct rb_device *device, int32_t *sum, const float *g, size_t n, float weight,
                  int exponent, int32_t limit, uint32_t *largest, bool *overflow)
{
    device->ops->fixed_add(device, sum, g, n, true, weight, exponent, limit, largest, overflow);
}

double rb_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                        double scale)
{
    return device->ops->fixed_squares(device, sum, n, exponent, scale);
}

void rb_apply_adamw(struct rb_device *device, float *w, float *m, float *v, const int32_t *sum,
                    size_t n, int exponent, float scale, const struct rb_adamw *how)
{
    device->ops->apply_adamw(device, w, m, v, sum, n, exponent, scale, how);
}

void rb_apply_sgd(struct rb_device *device, float *w, float *m, const int32_t *sum, size_t n,
                  int exponent, float scale, const struct rb_sgd *how)
{
    device->ops->apply_sgd(device, w, m, sum, n, exponent, scale, how);
}

void rb_apply_statistic(struct rb_device *device, float *w, const int32_t *sum, size_t n,
                        int exponent, float keep)
{
    device->ops->apply_statistic(device, w, sum, n, exponent, keep);
}
