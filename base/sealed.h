/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a name that processes share: sealed against shrinking, so that a process that maps
 * one cannot fault later.
 *
 * [sealed] > links of shared memory, memory that is shown */
#ifndef RB_BASE_SEALED_H
#define RB_BASE_SEALED_H

#include <stddef.h>
#include <stdint.h>

/* A file of zeros, with `name` where the system lists it; the caller closes it.  -1: there is
 * none. */
int rb_sealed_create(const char *name, size_t bytes);

/* The size of a file that another process gave; -1: it is no file, or not sealed so. */
int64_t rb_sealed_size(int file);

#endif
