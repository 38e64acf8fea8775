/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <stdio.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t rb_hash64(const void *bytes, size_t size)
{
    return XXH3_64bits(bytes, size);
}

uint64_t rb_hash_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void rb_hash_digest(const void *bytes, size_t size, char ret_digest[33])
{
    XXH128_hash_t hash = XXH3_128bits(bytes, size);

    snprintf(ret_digest, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}
