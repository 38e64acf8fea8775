/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/page.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void rb_page_add(struct rb_table *page, const char *name, const char *format, ...)
{
    char *text = NULL;
    va_list args;

    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        text = NULL;
    va_end(args);
    rb_table_add(page, name);
    rb_table_add(page, text ? text : "");
    free(text);
}

void rb_page_print(const struct rb_session *session, struct rb_table *page)
{
    struct rb_buffer text = {0};

    rb_table_print(page, "ll", &text);
    rb_session_put(session, &text);
    rb_table_done(page);
}
