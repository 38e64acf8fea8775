/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10, 64 blocks at a time (a loop that long becomes vectors).  Written from the paper;
 * the tests hold it against Random123. */
#include "kernels/random.h"

#include "base/hash.h"
#include "kernels/cpu/vector.h"

/* The last blocks are rounded up to a multiple of FEW, which make whole vectors. */
enum { BLOCKS = 64, FEW = 16, ROUNDS = 10 };

/* Words of blocks [block, block + n), n <= BLOCKS, four each. */
RB_CLONES static void many_blocks(uint64_t block, int n, uint32_t id, uint32_t microbatch,
                                  uint64_t key, uint32_t *restrict words)
{
    uint32_t a[BLOCKS], b[BLOCKS], c[BLOCKS], d[BLOCKS];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int i = 0; i < n; i++) {
        a[i] = (uint32_t)(block + (uint64_t)i);
        b[i] = (uint32_t)((block + (uint64_t)i) >> 32);
        c[i] = id;
        d[i] = microbatch;
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            uint64_t p = (uint64_t)a[i] * 0xd2511f53u, q = (uint64_t)c[i] * 0xcd9e8d57u;

            a[i] = (uint32_t)(q >> 32) ^ b[i] ^ k0;
            b[i] = (uint32_t)q;
            c[i] = (uint32_t)(p >> 32) ^ d[i] ^ k1;
            d[i] = (uint32_t)p;
        }
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    for (int i = 0; i < n; i++) {
        words[4 * i] = a[i];
        words[4 * i + 1] = b[i];
        words[4 * i + 2] = c[i];
        words[4 * i + 3] = d[i];
    }
}

void rb_random_words(const struct rb_key *key, uint32_t id, uint64_t first, uint32_t *ret_words,
                     size_t n)
{
    uint64_t k = rb_hash_mix(key->seed + rb_hash_mix(key->step));
    uint64_t block = first / 4;
    uint32_t rest[4 * BLOCKS];

    for (; n >= 4 * BLOCKS; n -= 4 * BLOCKS) {
        many_blocks(block, BLOCKS, id, key->microbatch, k, ret_words);
        ret_words += 4 * BLOCKS;
        block += BLOCKS;
    }
    if (n > 0) {
        many_blocks(block, (int)((n + 4 * FEW - 1) / (4 * FEW)) * FEW, id, key->microbatch, k,
                    rest);
        memcpy(ret_words, rest, n * sizeof(*rest));
    }
}
