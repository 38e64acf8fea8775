/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers as a function: Philox4x32-10 (Salmon et al., SC 2011; library Random123).
 *
 * Element i of instruction `id` draws word i%4 of the block with
 *     counter = { low 32 bits of i/4, high 32 bits of i/4, id, microbatch }
 *     key     = { low 32 bits of k, high 32 bits of k },  k = mix(seed + mix(step))
 * mix being rb_hash_mix.  A dropout keeps the element where the word is
 * >= round(ratio * 2^32); a uniform number is the word's upper 24 bits over 2^24. */
#ifndef RB_KERNELS_RANDOM_H
#define RB_KERNELS_RANDOM_H

#include "kernels/device.h"

/* Words for elements [first, first + n); first a multiple of 4. */
void rb_random_words(const struct rb_key *key, uint32_t id, uint64_t first, uint32_t *ret_words,
                     size_t n);

#endif
