/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/lines.h"

#include "base/arena.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void rb_lines_add(struct rb_lines *lines, enum rb_look look, const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = rb_string("");
    va_end(args);
    for (char *at = text; *at; at++) {
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    }
    lines->line = rb_realloc(lines->line, (lines->n + 1) * sizeof *lines->line);
    lines->line[lines->n++] = (struct rb_line_shown){text, look};
}

/* Behind so many characters of UTF-8, whose further bytes begin with 10. */
static void cut(char *text, int width)
{
    int n = 0;

    for (; *text; text++) {
        if ((*text & 0xc0) == 0x80)
            continue;
        if (n++ == width)
            break;
    }
    *text = '\0';
}

void rb_lines_cut(struct rb_lines *lines, int width, int height)
{
    while (lines->n > (size_t)height)
        free(lines->line[--lines->n].text);
    for (size_t i = 0; i < lines->n; i++)
        cut(lines->line[i].text, width);
}

void rb_lines_done(struct rb_lines *lines)
{
    rb_lines_cut(lines, 0, 0);
    free(lines->line);
    *lines = (struct rb_lines){0};
}
