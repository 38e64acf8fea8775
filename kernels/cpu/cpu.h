/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the CPU backend: its device, and the prepare functions that the operator table names.
 *
 * device.c > [cpu/device, cpu/table] > one file an operator family > vector loops | oneDNN */
#ifndef RB_KERNELS_CPU_CPU_H
#define RB_KERNELS_CPU_CPU_H

#include "base/arena.h"
#include "kernels/backend.h"
#include "kernels/call.h"

/* Memory that a kernel needs while it runs: one kernel runs at a time. */
struct rb_cpu_room {
    void *memory;
    size_t bytes;
};

struct rb_cpu {
    struct rb_device base;
    struct rb_dnnl *dnnl;
    int bfloat; /* enum rb_dnnl_bfloat: which products of bfloat16 use float32 copies */
    struct rb_cpu_room copies;  /* of bfloat16 in float32, for a kernel that may need, */
    struct rb_cpu_room windows; /* beside these, what windows show of an activation, */
    struct rb_cpu_room panels;  /* and beside both, factors in the order of their use */
};

typedef int rb_cpu_prepare(struct rb_cpu *cpu, const struct rb_call *call,
                           struct rb_kernel **ret_kernel, struct rb_why *why);

/* By operator; NULL where there is no kernel. */
extern rb_cpu_prepare *const rb_cpu_table[RB_OP_COUNT];

rb_cpu_prepare rb_cpu_binary, rb_cpu_unary, rb_cpu_where, rb_cpu_cast, rb_cpu_point_grad,
    rb_cpu_fused;
rb_cpu_prepare rb_cpu_reshape, rb_cpu_transpose, rb_cpu_expand, rb_cpu_concat, rb_cpu_split,
    rb_cpu_slice, rb_cpu_slice_grad, rb_cpu_trilu;
rb_cpu_prepare rb_cpu_gather, rb_cpu_gather_grad;
rb_cpu_prepare rb_cpu_gather_elements, rb_cpu_scatter;
rb_cpu_prepare rb_cpu_arg_max, rb_cpu_cum_sum, rb_cpu_top_k;
rb_cpu_prepare rb_cpu_reduce, rb_cpu_softmax, rb_cpu_softmax_grad;
rb_cpu_prepare rb_cpu_matmul, rb_cpu_conv, rb_cpu_attention;
rb_cpu_prepare rb_cpu_layer_norm, rb_cpu_layer_norm_grad;
rb_cpu_prepare rb_cpu_batch_norm, rb_cpu_batch_norm_eval, rb_cpu_batch_norm_grad;
rb_cpu_prepare rb_cpu_max_pool, rb_cpu_max_pool_grad, rb_cpu_average_pool, rb_cpu_average_pool_grad;
rb_cpu_prepare rb_cpu_dropout, rb_cpu_uniform;
rb_cpu_prepare rb_cpu_cross_entropy, rb_cpu_cross_entropy_grad, rb_cpu_mse, rb_cpu_mse_grad,
    rb_cpu_bce, rb_cpu_bce_grad, rb_cpu_graph_loss;

void rb_cpu_fixed_add(struct rb_device *device, int32_t *sum, const float *g, size_t n, bool fresh,
                      float weight, int exponent, int32_t limit, uint32_t *largest, bool *overflow);
void rb_cpu_fixed_squares(struct rb_device *device, const int32_t *sum, size_t n, int exponent,
                          double scale, double *ret_squares);
void rb_cpu_apply_adamw(struct rb_device *device, float *w, float *m, float *v, struct rb_sums sums,
                        size_t n, int exponent, float scale, const struct rb_adamw *how,
                        double *ret_squares);
void rb_cpu_apply_sgd(struct rb_device *device, float *w, float *m, struct rb_sums sums, size_t n,
                      int exponent, float scale, const struct rb_sgd *how, double *ret_squares);
void rb_cpu_predict(struct rb_device *device, float *out, const float *w, const float *m,
                    const float *v, size_t n, const struct rb_predict *how);
void rb_cpu_apply_statistic(struct rb_device *device, float *w, struct rb_sums sums, size_t n,
                            int exponent, float keep);

/* Called while a kernel is prepared: the room must hold at least `bytes`.  It may move, so each run
 * looks up its address.  RB_ENOMEM: the room is as it was. */
int rb_cpu_need(struct rb_cpu_room *room, size_t bytes);

/* 64-byte aligned memory that may be large: NULL when there is none.  Free with free(). */
void *rb_cpu_scratch(size_t bytes);

typedef void rb_cpu_run(struct rb_kernel *kernel, const void *const *in, void *const *out,
                        const struct rb_key *key);

/* A zeroed kernel of `size` bytes that plain free() ends. */
void *rb_cpu_kernel(size_t size, rb_cpu_run *run);

#endif
