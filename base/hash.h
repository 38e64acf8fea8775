/* SPDX-License-Identifier: Apache-2.0 */
/* Digests: 128-bit XXH3, for naming content and for seeing accidents, not for security. */
#ifndef RB_BASE_HASH_H
#define RB_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t rb_hash64(const void *bytes, size_t size);

/* 32 lower-case hex digits and a NUL. */
void rb_hash_digest(const void *bytes, size_t size, char ret_digest[33]);

#endif
