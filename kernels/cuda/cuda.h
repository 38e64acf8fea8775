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

/* What each play of a tape is told anew (kernels/device.h).  Kernels get it by value; those that
 * are kept on a tape read it from the GPU's memory. */
struct rb_cuda_key {
    uint32_t k0, k1, microbatch;
};

struct rb_cuda_sum {
    int32_t *sum;
    uint32_t *largest;
    bool *overflow;
    float weight, first, second; /* 2^exponent is first times second */
    int32_t limit;
    bool fresh;
};

struct rb_cuda_tape;

struct rb_cuda {
    struct rb_device base;
    struct rb_gpu *gpu;
    struct rb_twins twins;
    struct rb_cuda_tape *tape; /* the tape that is being kept; NULL: none */
    uint64_t moves;            /* how often scratch has moved */
    void *partial; /* RB_CUDA_PARTS numbers of 8 bytes, for sums that are made in two passes */
    void *scratch; /* of the kernel that runs */
    size_t scratch_bytes;
    void *spare; /* of a kernel around another (rounded.cu) */
    size_t spare_bytes;
};

/* What each kernel of the backend begins with: run takes the host's names of memory, launch the
 * GPU's own addresses. */
struct rb_cuda_kernel {
    struct rb_kernel base;
    void (*launch)(struct rb_cuda_kernel *kernel, const void *const *in, void *const *out,
                   const struct rb_key *key);
};

enum { RB_CUDA_PARTS = 1024 };

void *rb_twins_alloc(struct rb_cuda *cuda, size_t bytes);
void rb_twins_release(struct rb_cuda *cuda, void *memory);
void rb_twins_discard(struct rb_cuda *cuda, void *memory, size_t bytes);
/* Memory that is not the device's own is left alone. */
void rb_twins_pull(struct rb_cuda *cuda, void *memory, size_t bytes);
void rb_twins_push(struct rb_cuda *cuda, void *memory, size_t bytes);

/* Within the GPU's memory, queued. */
void rb_twins_copy(struct rb_cuda *cuda, void *to, const void *from, size_t bytes);

/* The GPU's address of something that the host names; NULL for NULL, and for what is not the
 * device's: that is then an error of the GPU. */
void *rb_twins_gpu(struct rb_cuda *cuda, const void *host);

/* A kernel that is being prepared will need `bytes` of scratch: cuda->scratch when it runs. */
int rb_cuda_need(struct rb_cuda *cuda, size_t bytes, struct rb_why *why);
/* The same of cuda->spare. */
int rb_cuda_need_spare(struct rb_cuda *cuda, size_t bytes, struct rb_why *why);

/* Where a kernel that is launched now is to read its key or sum; NULL: the one it was given is
 * right. */
const struct rb_cuda_key *rb_cuda_tape_key(struct rb_cuda *cuda);
const struct rb_cuda_sum *rb_cuda_tape_sum(struct rb_cuda *cuda);

/* From the host's structs. */
struct rb_cuda_key rb_cuda_key_of(const struct rb_key *key);
struct rb_cuda_sum rb_cuda_sum_of(struct rb_cuda *cuda, const struct rb_fixed *into);

int rb_cuda_tape_start(struct rb_device *device, size_t sums, struct rb_tape **ret_tape,
                       struct rb_why *why);
int rb_cuda_tape_end(struct rb_tape *tape, struct rb_why *why);
bool rb_cuda_tape_play(struct rb_tape *tape, const struct rb_key *key, const struct rb_fixed *sums,
                       size_t n_sums);
void rb_cuda_tape_free(struct rb_tape *tape);

int rb_cuda_circle_ticket(struct rb_device *device, void *ret_ticket, struct rb_why *why);
int rb_cuda_circle_enter(struct rb_device *device, const void *ticket, int rank, int size,
                         struct rb_circle **ret_circle, struct rb_why *why);
int rb_cuda_circle_ready(struct rb_circle *circle, bool *ret_ready, struct rb_why *why);
int rb_cuda_circle_sum(struct rb_circle *circle, const int32_t *in, int32_t *out,
                       const struct rb_circle_range *ranges, size_t n, bool (*over)(void *context),
                       void *context, struct rb_why *why);
int rb_cuda_circle_move(struct rb_circle *circle, const struct rb_circle_move *moves, size_t n,
                        bool (*over)(void *context), void *context, struct rb_why *why);
void rb_cuda_circle_leave(struct rb_circle *circle);
void rb_cuda_circle_stop(struct rb_circle *circle);
int rb_cuda_circle_shrink(struct rb_circle *circle, const int *gone, int n,
                          struct rb_circle **ret_circle, struct rb_why *why);

int rb_cuda_shelf_open(struct rb_device *device, size_t bytes, void *ret_address,
                       struct rb_shelf **ret_shelf, struct rb_why *why);
int rb_cuda_shelf_find(struct rb_device *device, const void *address, size_t bytes,
                       struct rb_shelf **ret_shelf, struct rb_why *why);
void rb_cuda_shelf_put(struct rb_shelf *shelf, size_t at, const struct iovec *from, int n);
void rb_cuda_shelf_take(struct rb_shelf *shelf, size_t at, const struct iovec *to, int n);
void rb_cuda_shelf_close(struct rb_shelf *shelf);

int rb_cuda_marks_new(struct rb_device *device, size_t n, struct rb_marks **ret_marks,
                      struct rb_why *why);
void rb_cuda_marks_set(struct rb_marks *marks, size_t i);
double rb_cuda_marks_between(struct rb_marks *marks, size_t from, size_t to);
bool rb_cuda_marks_reached(struct rb_marks *marks, size_t i);
void rb_cuda_marks_free(struct rb_marks *marks);

typedef int rb_cuda_prepare(struct rb_cuda *cuda, const struct rb_call *call,
                            struct rb_kernel **ret_kernel, struct rb_why *why);

/* By operator; NULL where there is no kernel.  A call has been accepted by the CPU's prepare before
 * it comes here: types and shapes fit each other. */
extern rb_cuda_prepare *const rb_cuda_table[RB_OP_COUNT];

rb_cuda_prepare rb_cuda_binary, rb_cuda_unary, rb_cuda_where, rb_cuda_cast, rb_cuda_point_grad,
    rb_cuda_fused;
rb_cuda_prepare rb_cuda_copy, rb_cuda_parts, rb_cuda_move, rb_cuda_slice_grad;
rb_cuda_prepare rb_cuda_gather, rb_cuda_gather_grad, rb_cuda_gather_elements, rb_cuda_scatter;
rb_cuda_prepare rb_cuda_arg_max, rb_cuda_cum_sum, rb_cuda_top_k;
rb_cuda_prepare rb_cuda_reduce, rb_cuda_softmax;
rb_cuda_prepare rb_cuda_matmul, rb_cuda_conv, rb_cuda_attention;
rb_cuda_prepare rb_cuda_layer_norm, rb_cuda_layer_norm_grad;
rb_cuda_prepare rb_cuda_batch_norm, rb_cuda_batch_norm_eval, rb_cuda_batch_norm_grad;
rb_cuda_prepare rb_cuda_max_pool, rb_cuda_max_pool_grad, rb_cuda_average_pool,
    rb_cuda_average_pool_grad;
rb_cuda_prepare rb_cuda_dropout, rb_cuda_uniform;
/* Another kernel on float32: tensors of bfloat16 are widened before it and rounded behind it. */
rb_cuda_prepare rb_cuda_rounded;
rb_cuda_prepare rb_cuda_cross_entropy, rb_cuda_cross_entropy_grad, rb_cuda_loss, rb_cuda_loss_grad,
    rb_cuda_graph_loss;

void rb_cuda_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, bool fresh,
                       float weight, int exponent, int32_t limit, uint32_t *largest,
                       bool *overflow);
void rb_cuda_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                           double scale, double *ret_squares);
void rb_cuda_apply_adamw(struct rb_device *device, float *w, float *m, float *v,
                         struct rb_sums sums, size_t n, int exponent, float scale,
                         const struct rb_adamw *how, double *ret_squares);
void rb_cuda_apply_sgd(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                       int exponent, float scale, const struct rb_sgd *how, double *ret_squares);
void rb_cuda_predict(struct rb_device *device, float *out, const float *w, const float *m,
                     const float *v, size_t n, const struct rb_predict *how);
void rb_cuda_apply_statistic(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                             int exponent, float keep);

#ifdef __cplusplus
}
#endif

#endif
