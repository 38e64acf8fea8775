/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's runtime and NCCL as functions that fail when told, to test what the backend does with
 * errors.
 *
 * gpu_test > kernels/cuda/gpu*.c > [fake_cuda, fake_nccl] */
#ifndef RB_TESTS_KERNELS_FAKE_CUDA_H
#define RB_TESTS_KERNELS_FAKE_CUDA_H

struct fake_cuda {
    int calls, fails;            /* how many were made; which of them fails, 0: none */
    int busy;                    /* so many queries answer that work is not done yet; -1: all */
    int last;                    /* the error that was not asked for */
    int streams, events, graphs; /* made and not given back */
};

extern struct fake_cuda fake_cuda;

/* Start anew, without what was left. */
void fake_cuda_start(int fails);

struct fake_nccl {
    int aborted, answer; /* how often; what abort answers: a ncclResult_t */
};

#endif
