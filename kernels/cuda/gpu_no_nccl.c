/* SPDX-License-Identifier: Apache-2.0 */
/* Circles where the toolkit has no NCCL: there are none. */
#include "kernels/cuda/gpu_inside.h"

int rb_gpu_circle_ticket(struct rb_gpu *gpu, void *ret_ticket, struct rb_why *why)
{
    (void)gpu;
    (void)ret_ticket;
    return rb_why_set(why, RB_EUNSUPPORTED, "no NCCL: this build was made without it");
}

int rb_gpu_circle_enter(struct rb_gpu *gpu, const void *ticket, int rank, int size,
                        struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    (void)ticket;
    (void)rank;
    (void)size;
    (void)ret_circle;
    return rb_gpu_circle_ticket(gpu, NULL, why);
}

int rb_gpu_circle_ready(struct rb_gpu_circle *circle, bool *ret_ready, struct rb_why *why)
{
    (void)circle;
    (void)ret_ready;
    return rb_gpu_circle_ticket(NULL, NULL, why);
}

int rb_gpu_circle_sum(struct rb_gpu_circle *circle, const int32_t *in, int32_t *out,
                      const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                      void *context, struct rb_why *why)
{
    (void)circle;
    (void)in;
    (void)out;
    (void)ranges;
    (void)n;
    (void)over;
    (void)context;
    return rb_gpu_circle_ticket(NULL, NULL, why);
}

int rb_gpu_circle_move(struct rb_gpu_circle *circle, const struct rb_circle_move *moves, size_t n,
                       bool (*over)(void *context), void *context, struct rb_why *why)
{
    (void)circle;
    (void)moves;
    (void)n;
    (void)over;
    (void)context;
    return rb_gpu_circle_ticket(NULL, NULL, why);
}

void rb_gpu_circle_leave(struct rb_gpu_circle *circle)
{
    (void)circle;
}

void rb_gpu_circle_stop(struct rb_gpu_circle *circle)
{
    (void)circle;
}

int rb_gpu_circle_shrink(struct rb_gpu_circle *circle, const int *gone, int n,
                         struct rb_gpu_circle **ret_circle, struct rb_why *why)
{
    (void)circle;
    (void)gone;
    (void)n;
    (void)ret_circle;
    return rb_gpu_circle_ticket(NULL, NULL, why);
}
