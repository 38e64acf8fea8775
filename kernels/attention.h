/* SPDX-License-Identifier: Apache-2.0 */
/* The shapes of a fused attention: what FusedAttention means, for every kind of device.
 *
 * call > [attention] > cpu/attention.c, cuda/attention.cu, the reference
 *
 *     s = scale q k'   (causal: minus infinity where the key comes after the query)
 *     p = softmax(s)   l = log of the sum of e to the s, a number a row
 *     y = dropout(p) v
 *
 * Element [matrix, i, j] of p draws the random word that a Dropout of that tensor would draw. */
#ifndef RB_KERNELS_ATTENTION_H
#define RB_KERNELS_ATTENTION_H

#include "kernels/call.h"

struct rb_attention {
    int64_t batch; /* matrices */
    int64_t queries, keys;
    int64_t depth, width; /* of a query and a key; of a value */
    float scale;
    bool causal;
    bool drops;
    uint32_t id;    /* keys randomness */
    uint32_t least; /* the smallest word that keeps an element */
    float factor;   /* what is kept is multiplied by it */
};

/* Read FusedAttention (q, k, v > y, l) or FusedAttentionGrad (dy, q, k, v, y, l > dq, dk, dv).
 * RB_EINVAL: the shapes do not fit each other. */
int rb_attention_read(const struct rb_call *call, struct rb_attention *ret, struct rb_why *why);

#endif
