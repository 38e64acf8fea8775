/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for a screen, and how each of them looks.
 *
 * top_view > [lines] > terminal
 *
 * Pure.  All zero is no lines. */
#ifndef RB_CTL_LINES_H
#define RB_CTL_LINES_H

#include <stddef.h>

enum rb_look {
    RB_LOOK_PLAIN,
    RB_LOOK_HEAD,   /* of the lines below */
    RB_LOOK_TALK,   /* not data: keys, axes */
    RB_LOOK_CHOSEN, /* by the cursor */
    RB_LOOK_BAD,
};

struct rb_lines {
    struct rb_line_shown {
        char *text; /* UTF-8 without control characters, each character one cell wide */
        enum rb_look look;
    } * line;
    size_t n;
};

void rb_lines_add(struct rb_lines *lines, enum rb_look look, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Cut to `width` cells a line, and to `height` lines. */
void rb_lines_cut(struct rb_lines *lines, int width, int height);

void rb_lines_done(struct rb_lines *lines);

#endif
