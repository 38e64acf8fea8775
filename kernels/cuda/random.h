/* SPDX-License-Identifier: Apache-2.0 */
/* The words of kernels/random.h, a block of four at a time. */
#ifndef RB_KERNELS_CUDA_RANDOM_H
#define RB_KERNELS_CUDA_RANDOM_H

#include "kernels/cuda/launch.h"

static inline RB_GPU void rb_random_block(const struct rb_cuda_key &key, uint32_t id,
                                          uint64_t block, uint32_t w[4])
{
    uint32_t a = key.k0, b = key.k1;

    w[0] = (uint32_t)block;
    w[1] = (uint32_t)(block >> 32);
    w[2] = id;
    w[3] = key.microbatch;
    for (int round = 0; round < 10; round++) {
        uint64_t p = (uint64_t)w[0] * 0xd2511f53u, q = (uint64_t)w[2] * 0xcd9e8d57u;
        uint32_t w0 = (uint32_t)(q >> 32) ^ w[1] ^ a, w2 = (uint32_t)(p >> 32) ^ w[3] ^ b;

        w[0] = w0;
        w[1] = (uint32_t)q;
        w[2] = w2;
        w[3] = (uint32_t)p;
        a += 0x9e3779b9u;
        b += 0xbb67ae85u;
    }
}

/* Calls of(i, word) for each element of a tensor with a word of its own.  A thread has a block of
 * four. */
template <class Element> struct rb_drawn {
    int64_t n;
    uint32_t id;
    struct rb_cuda_key key;
    const struct rb_cuda_key *kept; /* instead of `key`, on a tape */
    Element of;

    RB_GPU void operator()(int64_t block) const
    {
        uint32_t w[4];

        rb_random_block(kept ? *kept : key, id, (uint64_t)block, w);
        for (int k = 0; k < 4 && 4 * block + k < n; k++)
            of(4 * block + k, w[k]);
    }
};

template <class Element>
static inline void rb_draw(struct rb_cuda *cuda, int64_t n, uint32_t id, const struct rb_key *key,
                           const Element &of)
{
    rb_drawn<Element> body = {n, id, rb_cuda_key_of(key), rb_cuda_tape_key(cuda), of};

    rb_each(cuda, (n + 3) / 4, body);
}

#endif
