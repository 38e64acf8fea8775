/* SPDX-License-Identifier: Apache-2.0 */
/* What a job file's data path stands for, as a list of files.
 *
 * data.train.path > [expand] > source; the Model, for workers
 *
 * A file is itself, a folder all files right in it that are not hidden, a pattern (*, ?, [a-z]) all
 * files that match, both by name, byte by byte: b10 before b2.  A backslash takes a mark's meaning
 * away, and what is there is no pattern. */
#ifndef RB_DATA_EXPAND_H
#define RB_DATA_EXPAND_H

#include "base/error.h"

#include <stddef.h>

/* Each keeps a descriptor and a map while it is read.  A job has up to four such lists, and a
 * process 65,536 descriptors (daemon/main.c) and, where nobody has said otherwise, 65,530 maps. */
enum { RB_EXPAND_MOST = 8192 };

struct rb_expanded {
    char **path;
    size_t n;
};

/* What is not there is kept as it is, for who opens it to say so.  RB_EINVAL: a pattern or a folder
 * without files, a folder in a folder, a file that comes twice, whatever it is called, a name that
 * is not UTF-8.
 * RB_ELIMIT: too many files. */
int rb_expand(char *const *paths, size_t n, struct rb_expanded *ret, struct rb_why *why);
void rb_expanded_done(struct rb_expanded *expanded);

#endif
