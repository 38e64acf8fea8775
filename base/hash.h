/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: XXH3, for naming content and for seeing accidents, not for security. */
#ifndef RB_BASE_HASH_H
#define RB_BASE_HASH_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

uint64_t rb_hash64(const void *bytes, size_t size);

/* Maps one number to another such that every input bit reaches every output bit (Stafford's variant
 * 13 of the 64-bit finaliser, that of SplitMix64).  Its bits decide what is trained: they never
 * change. */
uint64_t rb_hash_mix(uint64_t x);

/* 128 bits: 32 lower-case hex digits and a NUL. */
void rb_hash_digest(const void *bytes, size_t size, char ret_digest[33]);

/* The same for a file, and its size.  The file is read in pieces, not mapped: if it cannot be read,
 * that must be an error, and with mapped memory it would end the process. */
int rb_hash_file(const char *path, char ret_digest[33], uint64_t *ret_bytes, struct rb_why *why);

#endif
