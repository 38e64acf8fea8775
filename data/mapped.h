/* SPDX-License-Identifier: Apache-2.0 */
/* A data file: as memory, for whoever looks into it, and read piece by piece, for samples.
 *
 * [mapped] > source, readers of formats
 *
 * What was read of a file is in the system's page cache, where all processes of a host share it.
 * What was looked at through a map counts as memory of each that did, until the whole data set
 * does.  A piece that is read costs a system call, and counts nowhere. */
#ifndef RB_DATA_MAPPED_H
#define RB_DATA_MAPPED_H

#include "base/file.h"

#include <stdbool.h>

struct rb_mapped {
    struct rb_map map; /* empty: there is none */
    char *path;
    int fd;
};

/* A file that must be there, be a plain one and have bytes.  To be closed where that fails too. */
int rb_mapped_open(const char *path, struct rb_mapped *ret, struct rb_why *why);
void rb_mapped_close(struct rb_mapped *mapped);

/* Is it as long as it was? */
int rb_mapped_check(const struct rb_mapped *mapped, struct rb_why *why);

/* Copy what lies at `from`, which is in the map, without looking there.  false: it cannot be read;
 * the map may have it nevertheless. */
bool rb_mapped_read(const struct rb_mapped *mapped, const uint8_t *from, size_t bytes, void *to);

/* A number by which the file's contents are known again: of its length and all of its bytes, where
 * it is long of 32 pieces from end to end.  Other data have another; a few bytes that were changed
 * in a long file may not show. */
uint64_t rb_mapped_hash(const struct rb_mapped *mapped);

/* What was looked at so far is no memory of ours any more; it is there as before. */
void rb_mapped_forget(const struct rb_mapped *mapped);

#endif
