/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/terminal.h"

#include "base/arena.h"

#define NCURSES_WIDECHAR 1
#define NCURSES_NOMACROS 1
#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ESCAPE_MS: how far apart the bytes of one key may arrive, over a slow line. */
enum { RED = 1, ESCAPE_MS = 100 };

struct rb_terminal {
    SCREEN *screen;
    bool blocks;
    void (*quit)(int); /* SIGQUIT's old action, which would not restore the terminal */
};

static bool moves_cursor(void)
{
    const char *how = tigetstr("cup");

    return how && how != (const char *)-1;
}

static void set_up(void)
{
    cbreak();
    noecho();
    curs_set(0);
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(ESCAPE_MS);
    if (has_colors()) {
        start_color();
        use_default_colors();
        init_pair(RED, COLOR_RED, -1);
    }
}

int rb_terminal_open(struct rb_terminal **ret_terminal, struct rb_why *why)
{
    const char *kind = getenv("TERM");
    struct rb_terminal *terminal;
    SCREEN *screen;

    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return rb_why_set(why, RB_EINVAL, "it needs a terminal");
    setlocale(LC_CTYPE, ""); /* the format of numbers is unchanged */
    screen = newterm(NULL, stdout, stdin);
    if (screen && !moves_cursor()) {
        endwin();
        delscreen(screen);
        screen = NULL;
    }
    if (!screen)
        return rb_why_set(why, RB_EINVAL,
                          "a terminal of kind '%.40s' is not known here, or too simple; set TERM",
                          kind ? kind : "");
    terminal = rb_alloc(sizeof *terminal);
    terminal->screen = screen;
    terminal->blocks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    terminal->quit = signal(SIGQUIT, SIG_IGN);
    set_up();
    *ret_terminal = terminal;
    return 0;
}

void rb_terminal_size(const struct rb_terminal *terminal, int *ret_width, int *ret_height)
{
    (void)terminal;
    *ret_width = getmaxx(stdscr);
    *ret_height = getmaxy(stdscr);
}

bool rb_terminal_blocks(const struct rb_terminal *terminal)
{
    return terminal->blocks;
}

static attr_t attribute(enum rb_look look)
{
    switch (look) {
    case RB_LOOK_HEAD:
        return A_BOLD;
    case RB_LOOK_TALK:
        return A_DIM;
    case RB_LOOK_CHOSEN:
        return A_REVERSE;
    case RB_LOOK_BAD:
        return A_BOLD | (has_colors() ? COLOR_PAIR(RED) : 0);
    case RB_LOOK_PLAIN:
        break;
    }
    return A_NORMAL;
}

void rb_terminal_draw(struct rb_terminal *terminal, const struct rb_lines *lines)
{
    (void)terminal;
    erase();
    for (size_t i = 0; i < lines->n; i++) {
        attrset((int)attribute(lines->line[i].look));
        move((int)i, 0); /* a line with wide characters may have run over into this one */
        clrtoeol();
        addstr(lines->line[i].text);
    }
    attrset(A_NORMAL);
    refresh();
}

static enum rb_press press_of(int key)
{
    switch (key) {
    case ERR:
        return RB_PRESS_NONE;
    case KEY_RESIZE:
        return RB_PRESS_RESIZED;
    case KEY_UP:
    case 'k':
        return RB_PRESS_UP;
    case KEY_DOWN:
    case 'j':
        return RB_PRESS_DOWN;
    case KEY_ENTER:
    case '\n':
    case '\r':
        return RB_PRESS_OPEN;
    case 'q':
        return RB_PRESS_CLOSE;
    case 's':
        return RB_PRESS_ORDER;
    case '?':
    case 'h':
        return RB_PRESS_HELP;
    default:
        return RB_PRESS_OTHER;
    }
}

int rb_terminal_press(struct rb_terminal *terminal, int interrupt_fd, int ms,
                      enum rb_press *ret_press, struct rb_why *why)
{
    struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_fd, POLLIN, 0}};
    int n;

    (void)terminal;
    *ret_press = press_of(getch());
    if (*ret_press != RB_PRESS_NONE)
        return 0;
    n = poll(fds, 2, ms);
    if (n > 0 && fds[1].revents)
        return rb_why_set(why, RB_ECANCELED, "interrupted");
    if (n < 0 && errno == EINTR) /* a signal: mostly a change of size */
        *ret_press = RB_PRESS_RESIZED;
    if (n <= 0)
        return 0;
    *ret_press = press_of(getch());
    if (*ret_press == RB_PRESS_NONE && fds[0].revents & (POLLHUP | POLLERR | POLLNVAL))
        return rb_why_set(why, RB_ECANCELED, "the terminal is gone");
    return 0;
}

void rb_terminal_close(struct rb_terminal *terminal)
{
    if (!terminal)
        return;
    endwin();
    delscreen(terminal->screen);
    signal(SIGQUIT, terminal->quit);
    free(terminal);
}
