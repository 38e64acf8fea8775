/* SPDX-License-Identifier: Apache-2.0 */
/* Going through several strided tensors at once, row by row.
 *
 * point, move, reduce > [walk]
 *
 * Axes that all operands step through alike are merged, so that most walks are one long row.  Steps
 * are in elements; a broadcast axis has step 0. */
#ifndef RB_KERNELS_CPU_WALK_H
#define RB_KERNELS_CPU_WALK_H

#include "proto/dtype.h"

#include <stdbool.h>

enum { RB_WALK_OPERANDS = 9 };

struct rb_walk {
    int rank; /* at least 1 once merged; the last axis is the row */
    int operands;
    int64_t dim[RB_MAX_RANK];
    int64_t step[RB_WALK_OPERANDS][RB_MAX_RANK];
    int64_t base[RB_WALK_OPERANDS]; /* first element */
};

/* Where the walk stands: the offset of the row in each operand.  All zero at the start. */
struct rb_walk_at {
    int64_t index[RB_MAX_RANK];
    int64_t offset[RB_WALK_OPERANDS];
};

/* Steps of a dense row-major tensor. */
void rb_walk_dense(const struct rb_tensor_type *type, int64_t *ret_step);

/* A walk over `out` (the last operand) and the `n` types that broadcast to it (NumPy's rule),
 * merged. false where one does not. */
bool rb_walk_broadcast(struct rb_walk *walk, const struct rb_tensor_type *out, int n,
                       const struct rb_tensor_type *in);

/* Drop axes of size 1 and merge neighbours. */
void rb_walk_merge(struct rb_walk *walk);

/* The rows of the walk; 0 where there is no element at all. */
int64_t rb_walk_rows(const struct rb_walk *walk);

void rb_walk_start(const struct rb_walk *walk, struct rb_walk_at *at);
void rb_walk_next(const struct rb_walk *walk, struct rb_walk_at *at);

#endif
