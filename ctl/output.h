/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a user names for what comes out: whole or as it was.
 *
 * export, model, plan > [output] > a file, a device or pipe, stdout
 *
 * A regular file gets its bytes beside it, without a name where the file system has such files, else
 * under a temporary one, and keeps its mode; what is none is written as it stands; a link is
 * followed.  "-" is standard output. */
#ifndef RB_CTL_OUTPUT_H
#define RB_CTL_OUTPUT_H

#include "ctl/session.h"

struct rb_output {
    const char *path; /* as the user said it, for errors */
    char *target;     /* what it leads to; NULL: written as it stands */
    char *temporary;
    bool unnamed; /* until it is whole */
    int fd;
};

/* With "-" what the session prints goes to stderr from here on. */
int rb_output_open(struct rb_session *session, const char *path, struct rb_output *ret,
                   struct rb_why *why);

int rb_output_add(struct rb_output *output, const void *bytes, size_t size, struct rb_why *why);

/* After an open without an error, always: puts it into its place, or, with `err`, leaves what was
 * there; returns `err` or its own. */
int rb_output_close(struct rb_output *output, int err, struct rb_why *why);

/* All of it at once. */
int rb_output_write(struct rb_session *session, const char *path, const void *bytes, size_t size,
                    struct rb_why *why);

#endif
