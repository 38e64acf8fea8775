/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/lines.h"

#include "base/arena.h"
#include "ctl/human.h"

#include <stdarg.h>
#include <stdlib.h>

void rb_lines_add(struct rb_lines *lines, enum rb_look look, const char *format, ...)
{
    va_list args;
    char *text;

    va_start(args, format);
    text = rb_human_plain(rb_format_list(format, args));
    va_end(args);
    lines->line = rb_realloc(lines->line, (lines->n + 1) * sizeof *lines->line);
    lines->line[lines->n++] = (struct rb_line_shown){text, look};
}

/* Cut behind `width` characters of UTF-8, whose further bytes begin with the bits 10. */
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
