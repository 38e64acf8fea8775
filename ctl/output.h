/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a user names for output: it is written whole, or stays as it was.
 *
 * export, model, plan > [output] > a file, a device or pipe, stdout
 *
 * For a regular file the bytes are first written beside it, to a file without a name where the file
 * system has such files, else under a temporary name; the file keeps its mode.  Anything else is
 * written directly; a link is followed.  "-" is standard output. */
#ifndef RB_CTL_OUTPUT_H
#define RB_CTL_OUTPUT_H

#include "ctl/session.h"

struct rb_output {
    const char *path; /* as the user said it, for errors */
    char *target;     /* where `path` leads; NULL: written directly */
    char *temporary;
    bool unnamed; /* until it is whole */
    int fd;
};

/* With "-" the session prints to stderr from here on. */
int rb_output_open(struct rb_session *session, const char *path, struct rb_output *ret,
                   struct rb_why *why);

int rb_output_add(struct rb_output *output, const void *bytes, size_t size, struct rb_why *why);

/* To be called after every successful open: puts the file into its place, or, with `err`, leaves
 * the old one there; returns `err` or its own error. */
int rb_output_close(struct rb_output *output, int err, struct rb_why *why);

/* Open, write all bytes and close. */
int rb_output_write(struct rb_session *session, const char *path, const void *bytes, size_t size,
                    struct rb_why *why);

#endif
