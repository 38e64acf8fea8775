/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by blocks of queries and keys, whose scores never leave the cache.
 *
 * attention > [attention_blocked] > attention_tile (products), attention_scores (between them)
 *
 * The keys and values of a block are packed, and all queries that see any of them are gone through,
 * some at a time, so the memory for scores does not grow with their number.  Forward, a row is
 * rescaled to its largest score as more of it is seen (Milakov and Gimelshein, "Online normalizer
 * calculation for softmax", 2018); backward, probabilities are made again from the logarithm of
 * their sum (Dao and others, "FlashAttention", 2022).  Blocks that no query sees are left out.
 *
 * A matrix is computed in one order, whatever its size: keys in blocks, queries in their order.
 *
 * With bfloat16, on processors that multiply pairs (pairs.h), scores and what is made of them are
 * float32 and are rounded when they become factors of the next product; sums are rounded when they
 * are whole. */
#ifndef RB_KERNELS_CPU_ATTENTION_BLOCKED_H
#define RB_KERNELS_CPU_ATTENTION_BLOCKED_H

#include "kernels/attention.h"
#include "kernels/cpu/cpu.h"

/* Are there tiles for this processor, and do rows fit them? */
bool rb_cpu_attention_suits(const struct rb_cpu *cpu, const struct rb_call *call,
                            const struct rb_attention *s);

/* Prepare a call that suits, forward or backward.  RB_ENOMEM. */
int rb_cpu_attention_blocked(struct rb_cpu *cpu, const struct rb_call *call,
                             const struct rb_attention *s, struct rb_kernel **ret_kernel);

#endif
