/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to rubatod over a unix socket, TCP or TLS.  Blocking, with a limit to every wait.
 *
 * client > [line] > sockets, proto/tls */
#ifndef RB_CTL_LINE_H
#define RB_CTL_LINE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct rb_line;

struct rb_line_to {
    const char *endpoint; /* unix:PATH, tcp:HOST:PORT or tls:HOST:PORT */
    const char *tls;      /* for tls: a folder with ca.crt, tls.crt and tls.key; else NULL */
    int interrupt_fd;     /* readable: give up with RB_ECANCELED; -1: none */
    int64_t most_ms;      /* limit for connecting, at most ten seconds; 0: ten seconds */
};

/* RB_EINVAL unless the text is an endpoint. */
int rb_line_check(const char *endpoint, struct rb_why *why);

/* RB_EUNREACHABLE, with a hint at what to check; RB_EINVAL, RB_ENOTFOUND, RB_EREFUSED for files
 * that are no certificates, or cannot be read. */
int rb_line_open(const struct rb_line_to *to, struct rb_line **ret_line, struct rb_why *why);
void rb_line_close(struct rb_line *line);

/* From now on a wait may take `ms`; after that RB_ETIMEOUT. */
void rb_line_arm(struct rb_line *line, int64_t ms);

int rb_line_put(struct rb_line *line, const void *bytes, size_t size, struct rb_why *why);

/* Read what has arrived, at least one byte.  RB_EUNREACHABLE where nothing comes any more. */
int rb_line_get(struct rb_line *line, void *to, size_t room, size_t *ret_size, struct rb_why *why);

/* "rubatod at ENDPOINT ...": RB_EUNREACHABLE. */
int rb_line_broken(const struct rb_line *line, const char *how, struct rb_why *why);

#endif
