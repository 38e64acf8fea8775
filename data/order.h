/* SPDX-License-Identifier: Apache-2.0 */
/* The order of samples: a keyed permutation of [0, n) with random access.
 *
 * step, microbatch > [order] > sample
 *
 * Sample j of step s has the number s*B + j; its epoch is number / n, its place in the epoch
 * number % n, and the sample is permute(place) under a key of (seed, epoch).  So each sample is
 * used exactly once an epoch whatever the devices do, and any process can compute any place.
 *
 * A four-round Feistel network on the smallest even number of bits that holds n, walked until it
 * lands below n (Black and Rogaway, CT-RSA 2002: cycle walking). */
#ifndef RB_DATA_ORDER_H
#define RB_DATA_ORDER_H

#include <stdint.h>

/* The sample at `place` of epoch `epoch`; 0 <= place < n. */
uint64_t rb_order_permute(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t place);

/* The sample with global number `number` (number = s*B + j). */
uint64_t rb_order_sample(uint64_t seed, uint64_t n, uint64_t number);

#endif
