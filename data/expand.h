/* SPDX-License-Identifier: Apache-2.0 */
/* What a job file's data path stands for, as a list of files.
 *
 * data.train.path > [expand] > source; the Model, for workers
 *
 * A file stands for itself; a folder for all files directly in it that are not hidden; a pattern
 * (*, ?, [a-z]) for all files that match.  Files of a folder or a pattern are in the order of their
 * names, byte by byte: b10 before b2.  A backslash takes a mark's meaning away, and a path that
 * exists is no pattern. */
#ifndef RB_DATA_EXPAND_H
#define RB_DATA_EXPAND_H

#include "base/error.h"

#include <stddef.h>

/* Files of one list, and of all lists of a job.  Each file keeps a descriptor and a map while it is
 * read; a process has 65,536 descriptors (daemon/main.c) and, by default, 65,530 maps. */
enum { RB_EXPAND_MOST = 8192, RB_EXPAND_MOST_OF_ALL = 4 * RB_EXPAND_MOST };

struct rb_expanded {
    char **path;
    size_t n;
};

/* A path that does not exist is kept as it is: opening it will say so.  RB_EINVAL: a pattern or a
 * folder without files, a folder in a folder, a file that comes twice, under whatever names, a name
 * that is not UTF-8.  RB_ELIMIT: too many files. */
int rb_expand(char *const *paths, size_t n, struct rb_expanded *ret, struct rb_why *why);
void rb_expanded_done(struct rb_expanded *expanded);

#endif
