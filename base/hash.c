/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "base/arena.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PIECE = 1 << 20 };

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

static void write_digest(XXH128_hash_t hash, char ret_digest[33])
{
    snprintf(ret_digest, 33, "%016llx%016llx", (unsigned long long)hash.high64,
             (unsigned long long)hash.low64);
}

void rb_hash_digest(const void *bytes, size_t size, char ret_digest[33])
{
    write_digest(XXH3_128bits(bytes, size), ret_digest);
}

static int hash_open(int fd, char ret_digest[33], uint64_t *ret_bytes)
{
    RB_CLEANUP(rb_freep) void *piece = rb_alloc(PIECE);
    XXH3_state_t state;
    uint64_t bytes = 0;
    ssize_t n;

    XXH3_128bits_reset(&state);
    while ((n = read(fd, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        XXH3_128bits_update(&state, piece, (size_t)n);
        bytes += (uint64_t)n;
    }
    write_digest(XXH3_128bits_digest(&state), ret_digest);
    *ret_bytes = bytes;
    return 0;
}

int rb_hash_file(const char *path, char ret_digest[33], uint64_t *ret_bytes, struct rb_why *why)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int err = 0;

    if (fd < 0 || hash_open(fd, ret_digest, ret_bytes))
        err = rb_why_set(why, rb_error_from_errno(errno), "%s: %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    return err;
}
