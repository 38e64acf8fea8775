/* SPDX-License-Identifier: Apache-2.0 */
/* Circles by NCCL from inside: for gpu_nccl*.c alone.
 *
 * gpu_nccl.c, gpu_nccl_sum.c > [gpu_nccl_open.c] > libnccl.so.2 */
#ifndef RB_KERNELS_CUDA_GPU_NCCL_H
#define RB_KERNELS_CUDA_GPU_NCCL_H

#include "kernels/cuda/gpu.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

/* The functions of NCCL that are called. */
struct rb_nccl {
    ncclResult_t (*id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*state)(ncclComm_t, ncclResult_t *);
    ncclResult_t (*all_reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
    ncclResult_t (*reduce)(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
                           ncclComm_t, cudaStream_t);
    ncclResult_t (*broadcast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*revoke)(ncclComm_t, int); /* both NULL: too old to shrink */
    ncclResult_t (*shrink)(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
    const char *(*error)(ncclResult_t);
};

/* NCCL, opened when it is first asked for: a machine may have none.  The result is the same each
 * time, and is there as long as the process is; NULL and a sentence, RB_EUNSUPPORTED: there is
 * none.  Any thread may ask. */
const struct rb_nccl *rb_nccl_open(struct rb_why *why);

/* RB_EPEER, and what NCCL calls it. */
int rb_nccl_refuse(const struct rb_nccl *nccl, ncclResult_t status, const char *what,
                   struct rb_why *why);

struct rb_gpu_circle {
    const struct rb_nccl *nccl;
    struct rb_gpu *gpu;
    ncclComm_t comm;   /* NULL while it is being shrunk out of `parent`, */
    ncclComm_t parent; /* which is given up when comm is there; NULL: entered, not shrunk */
    int rank;
    bool stopped;
    bool used; /* a communicator did not end as it should, and may use what is below for good */
    cudaStream_t stream;
    cudaEvent_t behind, done; /* events: behind what is queued before a sum or move; behind that */
};

#endif
