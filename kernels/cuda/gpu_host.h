/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch is on the host in a GPU's place: a loop, run at once or kept on the tape. */
#ifndef RB_KERNELS_CUDA_GPU_HOST_H
#define RB_KERNELS_CUDA_GPU_HOST_H

#include "kernels/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls run(what).  While a tape is kept: keeps a copy of its `bytes`, and calls run with that each
 * time the tape is played. */
void rb_gpu_host_run(struct rb_gpu *gpu, void (*run)(void *what), const void *what, size_t bytes);

/* Lets what was sent arrive: to be called in front of everything that reads or changes the memory.
 */
void rb_gpu_host_arrive(struct rb_gpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
