/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's runtime and NCCL as functions that fail when told, for what the backend makes of errors.
 *
 * gpu_test > kernels/cuda/gpu*.c > [fake_cuda, fake_nccl] */
#ifndef RB_TESTS_KERNELS_FAKE_CUDA_H
#define RB_TESTS_KERNELS_FAKE_CUDA_H

struct fake_cuda {
    int calls, fails;            /* so many were made; which of them fails, 0: none */
    int busy;                    /* so many queries say that it is not done yet; -1: all */
    int last;                    /* the error that was not asked for */
    int streams, events, graphs; /* that were made and not given back */
};

extern struct fake_cuda fake_cuda;

/* Anew, without what was left. */
void fake_cuda_start(int fails);

struct fake_nccl {
    int aborted, answer; /* how often, and what is said to it: a ncclResult_t */
};

#endif
