/* SPDX-License-Identifier: Apache-2.0 */
/* Every operator once more, as plainly as it can be said: loops over indices, arithmetic in double.
 *
 * proto/operators.h > [reference] > tests
 *
 * This is what the fast kernels are held against; it is never run in training.  Nothing is checked:
 * the call is one that rb_kernel_prepare has accepted. */
#ifndef RB_KERNELS_REFERENCE_REFERENCE_H
#define RB_KERNELS_REFERENCE_REFERENCE_H

#include "kernels/call.h"
#include "kernels/device.h"

/* What an F32 element is kept as.  Gradients are checked against differences in double precision,
 * for which a second build of these files has double here. */
#ifdef RB_REFERENCE_DOUBLE
typedef double rb_real;
#else
typedef float rb_real;
#endif

typedef void rb_reference(const struct rb_call *call, const void *const *in, void *const *out,
                          const struct rb_key *key);

/* By operator; NULL for views. */
extern rb_reference *const rb_reference_table[RB_OP_COUNT];

rb_reference rb_reference_point, rb_reference_fused, rb_reference_move, rb_reference_gather,
    rb_reference_index_elements, rb_reference_order, rb_reference_reduce, rb_reference_softmax,
    rb_reference_matmul, rb_reference_attention, rb_reference_conv, rb_reference_layer_norm,
    rb_reference_batch_norm, rb_reference_max_pool, rb_reference_average_pool, rb_reference_dropout,
    rb_reference_uniform, rb_reference_loss;

/* An elementwise operator on numbers. */
double rb_reference_value(const struct rb_call *call, const double *v);

/* Element i as a double, whatever its type (integers up to 2^53). */
double rb_reference_get(const struct rb_tensor_type *type, const void *data, int64_t i);
void rb_reference_set(const struct rb_tensor_type *type, void *data, int64_t i, double x);

/* Between a flat position and an index an axis. */
void rb_reference_index(const struct rb_tensor_type *type, int64_t i, int64_t *ret_index);
int64_t rb_reference_flat(const struct rb_tensor_type *type, const int64_t *index);

/* The element of a broadcast tensor that meets `index` of a tensor of `rank` axes. */
int64_t rb_reference_broadcast(const struct rb_tensor_type *type, const int64_t *index, int rank);

/* Where a tensor of the call is in blocks of channels (proto/blocked.h): run `reference` on plain
 * copies and return true. */
bool rb_reference_blocked(const struct rb_call *call, int spatial, rb_reference *reference,
                          const void *const *in, void *const *out, const struct rb_key *key);

/* Where a tensor of the call is of bfloat16: run `reference` on copies that are not, and return
 * true. */
bool rb_reference_widened(const struct rb_call *call, rb_reference *reference,
                          const void *const *in, void *const *out, const struct rb_key *key);

void rb_reference_fill(const struct rb_tensor_type *type, void *data, double x);

/* Optimizers and fixed-point sums (kernels/device.h), by the formulas of their papers. */
void rb_reference_fixed_add(int32_t *sum, const float *g, size_t n, float weight, int exponent,
                            int32_t limit, uint32_t *largest, bool *overflow);
void rb_reference_adamw(double *w, double *m, double *v, const double *g, size_t n, double lr,
                        double beta1, double beta2, double eps, double decay, int t);
void rb_reference_sgd(double *w, double *m, const double *g, size_t n, double lr, double momentum,
                      double decay, bool nesterov, bool first);

#endif
