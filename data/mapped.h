/* SPDX-License-Identifier: Apache-2.0 */
/* A data file: mapped, for code that looks into it, and read piece by piece, for samples.
 *
 * [mapped] > source, readers of formats
 *
 * What is read from a file is in the system's page cache, where all processes of a host share it.
 * What is looked at through a map counts as memory of each process that looks, in the end the whole
 * data set.  A piece that is read costs a system call, and counts as no process's memory. */
#ifndef RB_DATA_MAPPED_H
#define RB_DATA_MAPPED_H

#include "base/file.h"

#include <stdbool.h>

struct rb_mapped {
    struct rb_map map; /* empty: there is none */
    char *path;
    int fd;
};

/* Open a file, which must exist, be a plain one and have bytes.  Close it even where this fails. */
int rb_mapped_open(const char *path, struct rb_mapped *ret, struct rb_why *why);
void rb_mapped_close(struct rb_mapped *mapped);

/* Is the file as long as it was? */
int rb_mapped_check(const struct rb_mapped *mapped, struct rb_why *why);

/* Copy the bytes at `from`, a place in the map, by reading the file instead of the map.  false:
 * they cannot be read; the map may have them nevertheless. */
bool rb_mapped_read(const struct rb_mapped *mapped, const uint8_t *from, size_t bytes, void *to);

/* A hash by which the file's contents are known again: of its length and all of its bytes, or of 32
 * pieces from end to end where it is long.  Other data have another hash; a few changed bytes in a
 * long file may not show. */
uint64_t rb_mapped_hash(const struct rb_mapped *mapped);

/* What was looked at so far no longer counts as memory of this process; it can be looked at as
 * before. */
void rb_mapped_forget(const struct rb_mapped *mapped);

#endif
