/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU from inside: for gpu*.c and product.c alone.
 *
 *     compute   kernels, products, tapes, clearing, sends  ──────●──────────────●─────▶
 *     out       what was queued, to the host                     └─▶ copy       │
 *     in        from the host, before what is queued next                copy ──┘ */
#ifndef RB_KERNELS_CUDA_GPU_INSIDE_H
#define RB_KERNELS_CUDA_GPU_INSIDE_H

#include "kernels/cuda/gpu.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

enum { RB_GPU_WORKSPACE = 32 << 20, RB_GPU_LANE_ROOM = 4 << 20, RB_GPU_SEND_ROOM = 16 << 20 };

/* Two rooms that the GPU can reach by itself, and the last copy into or out of each. */
struct rb_gpu_rooms {
    char *at[2];
    cudaEvent_t done[2];
};

/* One way of copies: while one room is copied the other is filled or emptied. */
struct rb_gpu_lane {
    pthread_mutex_t lock;
    cudaStream_t stream;
    cudaEvent_t behind; /* of what was queued for computing when a copy began */
    struct rb_gpu_rooms rooms;
};

/* What was sent lies here until its copy's turn comes.  A room is filled from its front, then the
 * other one; it is filled again when the last copy out of it is done. */
struct rb_gpu_sends {
    pthread_mutex_t lock;
    struct rb_gpu_rooms rooms;
    int filling;
    size_t filled; /* bytes of the one that is being filled */
};

struct rb_gpu {
    int index;
    cudaStream_t stream;
    struct rb_gpu_lane in, out;
    struct rb_gpu_sends sends;
    cublasLtHandle_t blas; /* from the first product on */
    void *dnn;             /* a handle of cuDNN, from the first convolution on */
    void *workspace;       /* of products: they run one after the other */
    atomic_bool failed;
    pthread_mutex_t lock; /* guards `why` */
    struct rb_why why;

    /* While a tape is kept; the thread is that of launches. */
    atomic_bool keeps;
    pthread_t keeper;
    cudaStream_t tape; /* NULL until it is needed */
    struct rb_why lost;
};

/* The version of cuDNN as it is found; 0: there is none.  rb_gpu_conv_close gives back what the GPU
 * has of it. */
size_t rb_gpu_conv_version(void);
void rb_gpu_conv_close(struct rb_gpu *gpu);

/* An error of CUDA's stays with the thread until it is asked for.  Call this for an error that was
 * reported or does no harm, so that the next launch does not take it for its own. */
void rb_gpu_forget(void);

/* Note an error, where it is one. */
void rb_gpu_note(struct rb_gpu *gpu, cudaError_t err, const char *what);

/* Is what the calling thread launches kept? */
bool rb_gpu_keeps(struct rb_gpu *gpu);

/* Where the calling thread's work goes. */
cudaStream_t rb_gpu_queue(struct rb_gpu *gpu);

cudaError_t rb_gpu_lane_open(struct rb_gpu_lane *lane);
void rb_gpu_lane_close(struct rb_gpu_lane *lane);
cudaError_t rb_gpu_sends_open(struct rb_gpu_sends *sends);
void rb_gpu_sends_close(struct rb_gpu_sends *sends); /* nothing is queued any more */

#endif
