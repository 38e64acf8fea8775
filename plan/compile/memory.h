/* SPDX-License-Identifier: Apache-2.0 */
/* Where in the arena each tensor lies, from when it lives.
 *
 * lifetimes > [memory] > offsets
 *
 * Two tensors share bytes only if no instruction sees both.  First fit by decreasing size: a large
 * tensor is placed before a small one, at the lowest offset where it fits. */
#ifndef RB_PLAN_COMPILE_MEMORY_H
#define RB_PLAN_COMPILE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { RB_MEMORY_ALIGN = 64 };

struct rb_memory_life {
    uint64_t bytes;
    int first, last; /* instructions, both included */
    uint64_t offset; /* out: a multiple of RB_MEMORY_ALIGN */
};

/* Fill in the offsets; the result is the bytes of the whole arena.  Nothing but the numbers given
 * decides: ties in size are broken by `first`, then by place in the array. */
uint64_t rb_memory_place(struct rb_memory_life *lives, int n);

#endif
