/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the CUDA backend: its device, its memory, and the prepare functions that its table names.
 *
 * device.c > [cuda/device, cuda/twins, cuda/table] > one file an operator family > gpu
 *
 * It is a module of its own, opened at run time (kernels/module.h).  C up to here; the operators'
 * files are CUDA C++, since their kernels are (kernels/cuda/launch.h). */
#ifndef RB_KERNELS_CUDA_CUDA_H
#define RB_KERNELS_CUDA_CUDA_H

#include "kernels/backend.h"
#include "kernels/call.h"
#include "kernels/cuda/gpu.h"

#include <pthread.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of the host and as much of the GPU's: the host's address names both (kernels/device.h). */
struct rb_twin {
    char *host, *gpu;
    size_t bytes;
};

struct rb_twins {
    pthread_mutex_t lock;
    struct rb_twin *at;
    size_t n, room;
};

struct rb_cuda {
    struct rb_device base;
    struct rb_gpu *gpu;
    struct rb_twins twins;
    void *partial; /* RB_CUDA_PARTS numbers of 8 bytes, for sums that are made in two passes */
    void *scratch; /* of whichever kernel runs */
    size_t scratch_bytes;
};

enum { RB_CUDA_PARTS = 1024 };

void *rb_twins_alloc(struct rb_cuda *cuda, size_t bytes);
void rb_twins_release(struct rb_cuda *cuda, void *memory);
void rb_twins_discard(struct rb_cuda *cuda, void *memory, size_t bytes);
/* Memory that is not the device's own is left alone. */
void rb_twins_pull(struct rb_cuda *cuda, void *memory, size_t bytes);
void rb_twins_push(struct rb_cuda *cuda, void *memory, size_t bytes);

/* The GPU's address of something that the host names; NULL for NULL, and for what is not the
 * device's: that is then an error of the GPU. */
void *rb_twins_gpu(struct rb_cuda *cuda, const void *host);

/* A kernel that is being prepared will need so much scratch: it is cuda->scratch when it runs. */
int rb_cuda_need(struct rb_cuda *cuda, size_t bytes, struct rb_why *why);

typedef int rb_cuda_prepare(struct rb_cuda *cuda, const struct rb_call *call,
                            struct rb_kernel **ret_kernel, struct rb_why *why);

/* By operator; NULL where there is no kernel.  A call has been accepted by the CPU's prepare before
 * it comes here: types and shapes fit each other. */
extern rb_cuda_prepare *const rb_cuda_table[RB_OP_COUNT];

rb_cuda_prepare rb_cuda_binary, rb_cuda_unary, rb_cuda_where, rb_cuda_cast, rb_cuda_point_grad;
rb_cuda_prepare rb_cuda_copy, rb_cuda_parts, rb_cuda_move, rb_cuda_slice_grad;
rb_cuda_prepare rb_cuda_gather, rb_cuda_gather_grad, rb_cuda_gather_elements, rb_cuda_scatter;
rb_cuda_prepare rb_cuda_arg_max, rb_cuda_cum_sum, rb_cuda_top_k;
rb_cuda_prepare rb_cuda_reduce, rb_cuda_softmax;
rb_cuda_prepare rb_cuda_matmul, rb_cuda_conv;
rb_cuda_prepare rb_cuda_layer_norm, rb_cuda_layer_norm_grad;
rb_cuda_prepare rb_cuda_batch_norm, rb_cuda_batch_norm_eval, rb_cuda_batch_norm_grad;
rb_cuda_prepare rb_cuda_max_pool, rb_cuda_max_pool_grad, rb_cuda_average_pool,
    rb_cuda_average_pool_grad;
rb_cuda_prepare rb_cuda_dropout;
rb_cuda_prepare rb_cuda_cross_entropy, rb_cuda_cross_entropy_grad, rb_cuda_loss, rb_cuda_loss_grad,
    rb_cuda_graph_loss;

void rb_cuda_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, bool fresh,
                       float weight, int exponent, int32_t limit, uint32_t *largest,
                       bool *overflow);
void rb_cuda_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                           double scale, double *ret_squares);
void rb_cuda_apply_adamw(struct rb_device *device, float *w, float *m, float *v, const int32_t *sum,
                         size_t n, int exponent, float scale, const struct rb_adamw *how);
void rb_cuda_apply_sgd(struct rb_device *device, float *w, float *m, const int32_t *sum, size_t n,
                       int exponent, float scale, const struct rb_sgd *how);
void rb_cuda_predict(struct rb_device *device, float *out, const float *w, const float *m,
                     const float *v, size_t n, const struct rb_predict *how);
void rb_cuda_apply_statistic(struct rb_device *device, float *w, const int32_t *sum, size_t n,
                             int exponent, float keep);

#ifdef __cplusplus
}
#endif

#endif
