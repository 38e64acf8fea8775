/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU from inside: for gpu.c and product.c alone. */
#ifndef RB_KERNELS_CUDA_GPU_INSIDE_H
#define RB_KERNELS_CUDA_GPU_INSIDE_H

#include "kernels/cuda/gpu.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

enum { RB_GPU_WORKSPACE = 32 << 20 };

struct rb_gpu {
    int index;
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *workspace; /* of products: they run one after the other */
    atomic_bool failed;
    pthread_mutex_t lock; /* guards `why` */
    struct rb_why why;
};

/* Note an error, where it is one. */
void rb_gpu_note(struct rb_gpu *gpu, cudaError_t err, const char *what);

#endif
