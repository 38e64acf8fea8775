/* SPDX-License-Identifier: Apache-2.0 */
#include "data/order.h"

#include "base/hash.h"

enum { ROUNDS = 4 };

/* Half of the smallest even number of bits that hold 0 .. n-1; at least one. */
static int half_bits(uint64_t n)
{
    int bits = n > 1 ? 64 - __builtin_clzll(n - 1) : 0;

    return bits > 2 ? (bits + 1) / 2 : 1;
}

uint64_t rb_order_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t place)
{
    const uint64_t golden = UINT64_C(0x9e3779b97f4a7c15);
    const int half = half_bits(n);
    const uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t key[ROUNDS];

    if (n <= 1)
        return 0;
    key[0] = rb_hash_mix(rb_hash_mix(seed + golden) + rb_hash_mix(epoch + 2 * golden));
    for (int round = 1; round < ROUNDS; round++)
        key[round] = rb_hash_mix(key[round - 1] + golden);

    /* The network permutes less than 4n numbers, so the walk is short; it ends because
     * the cycle that starts below n comes back there. */
    do {
        uint64_t left = place >> half, right = place & mask;

        for (int round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (rb_hash_mix(right + key[round]) & mask);

            left = right;
            right = next;
        }
        place = left << half | right;
    } while (place >= n);
    return place;
}

uint64_t rb_order_sample(uint64_t seed, uint64_t n, uint64_t number)
{
    return rb_order_permute(seed, number / n, n, number % n);
}
