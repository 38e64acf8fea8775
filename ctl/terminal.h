/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal: all of it for our lines, and its keys.
 *
 * top > [terminal] > ncurses */
#ifndef RB_CTL_TERMINAL_H
#define RB_CTL_TERMINAL_H

#include "base/error.h"
#include "ctl/lines.h"

#include <stdbool.h>

enum rb_press {
    RB_PRESS_NONE,
    RB_PRESS_OTHER,
    RB_PRESS_RESIZED, /* the terminal has another size: draw anew */
    RB_PRESS_UP,
    RB_PRESS_DOWN,
    RB_PRESS_OPEN,  /* enter */
    RB_PRESS_CLOSE, /* q */
    RB_PRESS_ORDER, /* s */
    RB_PRESS_HELP,  /* ? or h */
};

struct rb_terminal;

/* RB_EINVAL: stdin or stdout is none, or it is of a kind that is not known here or has
 * no cursor to be moved. */
int rb_terminal_open(struct rb_terminal **ret_terminal, struct rb_why *why);

void rb_terminal_size(const struct rb_terminal *terminal, int *ret_width, int *ret_height);

/* It shows UTF-8. */
bool rb_terminal_blocks(const struct rb_terminal *terminal);

void rb_terminal_draw(struct rb_terminal *terminal, const struct rb_lines *lines);

/* A key that was pressed, or RB_PRESS_NONE after `ms` without one; RB_ECANCELED where there is
 * something to read from interrupt_fd, or nobody there any more. */
int rb_terminal_press(struct rb_terminal *terminal, int interrupt_fd, int ms,
                      enum rb_press *ret_press, struct rb_why *why);

/* Leaves it as it was; NULL is a no-op. */
void rb_terminal_close(struct rb_terminal *terminal);

#endif
