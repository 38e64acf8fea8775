/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and texts in a form for people.  Numbers are written into `ret`, which is returned. */
#ifndef RB_CTL_HUMAN_H
#define RB_CTL_HUMAN_H

#include <stdint.h>

enum { RB_HUMAN_SIZE = 32 };

char *rb_human_count(double x, char ret[RB_HUMAN_SIZE]);        /* 999, 38.4 k, 3.30 M */
char *rb_human_bytes(double bytes, char ret[RB_HUMAN_SIZE]);    /* 12 B, 1.9 GiB */
char *rb_human_span(double seconds, char ret[RB_HUMAN_SIZE]);   /* 4s, 11m22s, 2h05m, 3d04h */
char *rb_human_time(uint64_t unix_ms, char ret[RB_HUMAN_SIZE]); /* 2026-01-02 03:04:05, UTC */
char *rb_human_real(double x, char ret[RB_HUMAN_SIZE]); /* 3.2143; 0.00012 keeps its digits */

/* Control characters become '?', in place, because a terminal would obey them; returns the text. */
char *rb_human_plain(char *text);

#endif
