/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal: the whole screen for lines, and its keys.
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

/* RB_EINVAL: stdin or stdout is no terminal, or the terminal is of an unknown kind or cannot move
 * its cursor. */
int rb_terminal_open(struct rb_terminal **ret_terminal, struct rb_why *why);

void rb_terminal_size(const struct rb_terminal *terminal, int *ret_width, int *ret_height);

/* Does the terminal show UTF-8? */
bool rb_terminal_blocks(const struct rb_terminal *terminal);

void rb_terminal_draw(struct rb_terminal *terminal, const struct rb_lines *lines);

/* A key that was pressed, or RB_PRESS_NONE after `ms` without one; RB_ECANCELED where there is
 * something to read from interrupt_fd, or the terminal is gone. */
int rb_terminal_press(struct rb_terminal *terminal, int interrupt_fd, int ms,
                      enum rb_press *ret_press, struct rb_why *why);

/* Leaves the terminal as it was; NULL is a no-op. */
void rb_terminal_close(struct rb_terminal *terminal);

#endif
