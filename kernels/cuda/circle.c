/* SPDX-License-Identifier: Apache-2.0 */
/* Circles by the host's names of memory. */
#include "base/arena.h"
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

struct circle {
    struct rb_circle base;
    struct rb_cuda *cuda;
    struct rb_gpu_circle *gpu;
};

int rb_cuda_circle_ticket(struct rb_device *device, void *ret_ticket, struct rb_why *why)
{
    return rb_gpu_circle_ticket(((struct rb_cuda *)device)->gpu, ret_ticket, why);
}

int rb_cuda_circle_enter(struct rb_device *device, const void *ticket, int rank, int size,
                         struct rb_circle **ret_circle, struct rb_why *why)
{
    struct circle *circle = rb_alloc(sizeof *circle);
    int err;

    circle->base.ops = device->ops;
    circle->cuda = (struct rb_cuda *)device;
    err = rb_gpu_circle_enter(circle->cuda->gpu, ticket, rank, size, &circle->gpu, why);
    if (err) {
        free(circle);
        return err;
    }
    *ret_circle = &circle->base;
    return 0;
}

int rb_cuda_circle_ready(struct rb_circle *base, bool *ret_ready, struct rb_why *why)
{
    return rb_gpu_circle_ready(((struct circle *)base)->gpu, ret_ready, why);
}

int rb_cuda_circle_sum(struct rb_circle *base, const int32_t *in, int32_t *out,
                       const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                       void *context, struct rb_why *why)
{
    struct circle *circle = (struct circle *)base;
    const int32_t *from = rb_twins_gpu(circle->cuda, in);
    int32_t *to = rb_twins_gpu(circle->cuda, out);
    int err = rb_gpu_check(circle->cuda->gpu, why);

    return err ? err : rb_gpu_circle_sum(circle->gpu, from, to, ranges, n, over, context, why);
}

int rb_cuda_circle_move(struct rb_circle *base, const struct rb_circle_move *moves, size_t n,
                        bool (*over)(void *context), void *context, struct rb_why *why)
{
    struct circle *circle = (struct circle *)base;
    RB_CLEANUP(rb_freep) struct rb_circle_move *there = rb_alloc(n * sizeof *there + 1);
    int err;

    for (size_t i = 0; i < n; i++) {
        there[i] = moves[i];
        if (moves[i].memory)
            there[i].memory = rb_twins_gpu(circle->cuda, moves[i].memory);
    }
    err = rb_gpu_check(circle->cuda->gpu, why);
    return err ? err : rb_gpu_circle_move(circle->gpu, there, n, over, context, why);
}

void rb_cuda_circle_leave(struct rb_circle *base)
{
    struct circle *circle = (struct circle *)base;

    rb_gpu_circle_leave(circle->gpu);
    free(circle);
}

void rb_cuda_circle_stop(struct rb_circle *base)
{
    rb_gpu_circle_stop(((struct circle *)base)->gpu);
}

/* It is the same circle, with another rb_gpu_circle inside. */
int rb_cuda_circle_shrink(struct rb_circle *base, const int *gone, int n,
                          struct rb_circle **ret_circle, struct rb_why *why)
{
    struct circle *circle = (struct circle *)base;
    int err = rb_gpu_circle_shrink(circle->gpu, gone, n, &circle->gpu, why);

    if (err)
        free(circle);
    else
        *ret_circle = base;
    return err;
}
