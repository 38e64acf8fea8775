/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a name that processes share: sealed against shrinking, so that nobody who maps one
 * can fault later.
 *
 * [sealed] > links of shared memory, memory that is shown */
#ifndef RB_BASE_SEALED_H
#define RB_BASE_SEALED_H

#include <stddef.h>
#include <stdint.h>

/* One of zeros, named so where the system lists it; the caller's to close.  -1: there is none. */
int rb_sealed_create(const char *name, size_t bytes);

/* Bytes of somebody's file; -1: it is none, or it is not sealed so. */
int64_t rb_sealed_size(int file);

#endif
