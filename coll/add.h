/* SPDX-License-Identifier: Apache-2.0 */
/* Adding integers modulo 2^32, as fast as memory goes. */
#ifndef RB_COLL_ADD_H
#define RB_COLL_ADD_H

#include <stddef.h>
#include <stdint.h>

/* out[i] = a[i] + b[i]; b: bytes of integers, without alignment.  out may be a. */
void rb_add(int32_t *out, const int32_t *a, const uint8_t *b, size_t n);

#endif
