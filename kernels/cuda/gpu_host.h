/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch is on the host in a GPU's place: a loop, run at once or kept on the tape. */
#ifndef RB_KERNELS_CUDA_GPU_HOST_H
#define RB_KERNELS_CUDA_GPU_HOST_H

#include "kernels/cuda/gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* run(what); with a copy of the `bytes` of it, each time a tape is played, where one is kept. */
void rb_gpu_host_run(struct rb_gpu *gpu, void (*run)(void *what), const void *what, size_t bytes);

/* What was sent has arrived: to be called in front of whatever looks at the memory or changes it.
 */
void rb_gpu_host_arrive(struct rb_gpu *gpu);

#ifdef __cplusplus
}
#endif

#endif
