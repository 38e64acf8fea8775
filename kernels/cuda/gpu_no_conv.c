/* SPDX-License-Identifier: Apache-2.0 */
/* No library of convolutions, on the host or in a toolkit without cuDNN: the backend's own way is
 * taken. */
#include "kernels/cuda/gpu.h"

int rb_gpu_conv_new(struct rb_gpu *gpu, const struct rb_gpu_conv_shape *shape,
                    struct rb_gpu_conv **ret_conv, size_t *ret_bytes, struct rb_why *why)
{
    (void)gpu;
    (void)shape;
    (void)ret_conv;
    (void)ret_bytes;
    return rb_why_set(why, RB_EUNSUPPORTED, "there is no library of convolutions");
}

void rb_gpu_conv_run(struct rb_gpu_conv *conv, const void *a, const void *b, void *to, void *memory)
{
    (void)conv;
    (void)a;
    (void)b;
    (void)to;
    (void)memory;
}

void rb_gpu_conv_free(struct rb_gpu_conv *conv)
{
    (void)conv;
}
