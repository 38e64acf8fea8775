/* SPDX-License-Identifier: Apache-2.0 */
/* Activations in blocks of channels: [N, C, spatial...] as [N, C/16, spatial..., 16].
 *
 * graph/layout > [blocked] > kernels
 *
 * Convolutions work in this layout, and other operators that go over all channels of a place find a
 * vector's worth of them side by side.  A blocked tensor is an ordinary dense one with one more
 * axis: elementwise operators, sums and moves need not know.  Convolutions, pools and batch norms
 * take an activation in either layout, and tell them apart by the rank; positions of a pool are
 * those of the plane without blocks. */
#ifndef RB_PROTO_BLOCKED_H
#define RB_PROTO_BLOCKED_H

#include "proto/dtype.h"

enum { RB_BLOCK = 16 };

/* Is this a blocked activation with `spatial` spatial axes? */
static inline bool rb_blocked(const struct rb_tensor_type *type, int spatial)
{
    return type->rank == spatial + 3 && type->dim[type->rank - 1] == RB_BLOCK;
}

/* May an activation (samples, channels, spatial axes) be blocked? */
static inline bool rb_blocked_may(const struct rb_tensor_type *plain)
{
    return plain->rank >= 3 && plain->rank < RB_MAX_RANK && plain->dim[1] > 0 &&
           plain->dim[1] % RB_BLOCK == 0;
}

static inline struct rb_tensor_type rb_blocked_of(const struct rb_tensor_type *plain)
{
    struct rb_tensor_type type = *plain;

    type.dim[1] /= RB_BLOCK;
    type.dim[type.rank++] = RB_BLOCK;
    return type;
}

/* The type without blocks; `type` itself if it has none. */
static inline struct rb_tensor_type rb_blocked_plain(const struct rb_tensor_type *type, int spatial)
{
    struct rb_tensor_type plain = *type;

    if (!rb_blocked(type, spatial))
        return plain;
    plain.rank--;
    plain.dim[1] *= RB_BLOCK;
    return plain;
}

#endif
