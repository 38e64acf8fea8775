/* SPDX-License-Identifier: Apache-2.0 */
/* A toolkit without cuDNN (convolutions: gpu_no_conv.c). */
#include "kernels/cuda/gpu_inside.h"

size_t rb_gpu_conv_version(void)
{
    return 0;
}

void rb_gpu_conv_close(struct rb_gpu *gpu)
{
    (void)gpu;
}
